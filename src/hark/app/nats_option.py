"""NatsOption: the option `nats` of an app. The code that talks to NATS is imported when an app that has it opens."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hark.engine.nats.counters import NatsCounters
from hark.engine.turns.clerk import Clerk
from hark.model.errors import InvalidInput
from hark.model.extras import import_extra, missing_extra
from hark.model.nats import Nats, NatsReport, at_url

if TYPE_CHECKING:
    from hark.engine.nats.bridge import NatsBridge


class NatsOption:
    """The NATS server that the app uses, if any."""

    def __init__(self, clerk: Clerk, max_payload: int) -> None:
        self._clerk = clerk
        self._max_payload = max_payload
        self.options: Nats | None = None
        self.connects = True  # False for a command that looks, or makes one call: it must not become the reader
        clerk.background.append(self._run)

    def use(self, nats: object) -> None:
        """Set the option: `Nats(…)`, or a URL, which leaves the other options as they are; None changes nothing.

        Raises:
            InvalidInput: It is none of these.
            MissingExtra: The NATS client is not installed.
        """
        if nats is None:
            return
        if not isinstance(nats, str | Nats):
            raise InvalidInput(
                "Hark(nats=…): give the URL of a NATS server, for example nats://localhost:4222, or Nats(…)."
            )
        if isinstance(nats, Nats):
            self.options = nats
        else:
            self.options = Nats(nats) if self.options is None else at_url(self.options, nats)
        self._clerk.counters.nats = NatsCounters()
        try:
            if find_spec("nats") is not None:
                return
        except ModuleNotFoundError:
            pass
        raise missing_extra(ModuleNotFoundError(name="nats"), extra="nats", needed_by="Hark(nats=…)")

    async def _run(self) -> None:
        """Run the bridge while the app is open, on the clerk's loop."""
        counters = self._clerk.counters.nats
        if self.options is None or counters is None or not self.connects:
            return
        # Beside the loop: the import takes longer than many turns.
        module = await asyncio.to_thread(_import_part, "bridge")
        bridge: NatsBridge = module.NatsBridge(self.options, self._clerk, self._max_payload, counters)
        self._clerk.published = bridge.outgoing
        try:
            await bridge.run()
        finally:
            self._clerk.published = None

    async def report(self) -> NatsReport | None:
        """Read the state of NATS, for `hark doctor`; None without the option."""
        if self.options is None:
            return None
        found: NatsReport = await _import_part("report").read_report(self.options)
        return found


def _import_part(name: str) -> Any:
    return import_extra(f"hark.engine.nats.{name}", extra="nats", needed_by="Hark(nats=…)")
