"""TurnOrder: decides which requests may share a turn.

A turn first ends instances, then deploys definitions, starts instances, delivers signals, settles awakeables and claims
awakeables, whatever the order of the requests. Requests about one instance or awakeable that were made in another order
must not share a turn. Nor must a message share one with a deploy: it reads the triggers before they change.
"""

from __future__ import annotations

from hark.kernel.requests import (
    AssignAwakeable,
    Cancel,
    Deliver,
    Deploy,
    DeployGroup,
    Message,
    Request,
    RetryInstance,
    SettleAwakeable,
    SetVariables,
    SignalWithStart,
    StartInstances,
)


class TurnOrder:
    """The targets of the requests in one turn so far."""

    def __init__(self) -> None:
        self._started: set[str] = set()  # ids and correlation keys
        self._signalled: set[str] = set()
        self._signalled_with_start: set[str | None] = set()
        self._claimed: set[str] = set()  # awakeables
        self._deploys = False  # definitions
        self._may_start = False  # instances, of any definition

    def fits(self, request: Request) -> bool:
        """Return False if the turn would handle this request before one that was made earlier."""
        match request:
            case Cancel(target=target) | RetryInstance(target=target) | SetVariables(target=target):
                return target not in self._started and target not in self._signalled
            case StartInstances():
                return self._signalled.isdisjoint(_started_names(request))
            case SignalWithStart(item=item):
                return item.correlation_key not in self._signalled and item.correlation_key not in self._started
            case Deliver(target=target):
                return target not in self._signalled_with_start
            case SettleAwakeable(settle=settle):
                return settle.awakeable not in self._claimed
            case Message():
                return not self._deploys
            case Deploy() | DeployGroup():
                return not self._may_start
            case _:
                return True

    def add(self, request: Request) -> None:
        match request:
            case StartInstances():
                self._started.update(_started_names(request))
                self._may_start = True
            case SignalWithStart(item=item):
                self._may_start = True
                self._signalled.add(item.correlation_key or "")
                self._signalled_with_start.add(item.correlation_key)
            case Deliver(target=target) | SetVariables(target=target):
                self._signalled.add(target)
            case AssignAwakeable(awakeable=awakeable):
                self._claimed.add(awakeable)
            case Message():
                self._may_start = True
            case Deploy() | DeployGroup():
                self._deploys = True
            case _:
                pass


def _started_names(request: StartInstances) -> list[str]:
    names = [item.correlation_key for item in request.items if item.correlation_key is not None]
    return names + [item.id for item in request.items if item.named]
