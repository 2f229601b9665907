"""What may share a turn: a turn ends, starts and delivers, in this order, whatever came first."""

from __future__ import annotations

from hark.kernel.requests import Cancel, Deliver, Request, RetryInstance, SignalWithStart, StartInstances


class TurnOrder:
    """The requests of one turn so far; what somebody asked for the other way round waits for the next."""

    def __init__(self) -> None:
        self._started: set[str] = set()
        self._told: set[str] = set()

    def fits(self, request: Request) -> bool:
        match request:
            case Cancel(target=target) | RetryInstance(target=target):
                return target not in self._started and target not in self._told
            case StartInstances():
                return self._told.isdisjoint(_started_names(request))
            case SignalWithStart(item=item):
                return item.correlation_key not in self._told and item.correlation_key not in self._started
            case Deliver(target=target):
                return f"\0{target}" not in self._told
            case _:
                return True

    def add(self, request: Request) -> None:
        match request:
            case StartInstances():
                self._started.update(_started_names(request))
            case SignalWithStart(item=item):
                self._told.update((item.correlation_key or "", f"\0{item.correlation_key}"))
            case Deliver(target=target):
                self._told.add(target)
            case _:
                pass


def _started_names(request: StartInstances) -> list[str]:
    names = [item.correlation_key for item in request.items if item.correlation_key is not None]
    return names + [item.id for item in request.items if item.named]
