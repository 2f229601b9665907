"""NatsOption: the option `nats` of an app. The code that talks to NATS is imported when an app that has it opens."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from hark.model.errors import InvalidInput
from hark.model.extras import import_extra, missing_extra
from hark.model.nats import Nats
from hark.runtime.clerk import Clerk

if TYPE_CHECKING:
    from hark.runtime.nats.bridge import NatsBridge


class NatsOption:
    """Which NATS server the app uses, if any."""

    def __init__(self, clerk: Clerk, max_payload: int) -> None:
        self._clerk = clerk
        self._max_payload = max_payload
        self.options: Nats | None = None
        self.bridge: NatsBridge | None = None  # while the app is open
        clerk.beside.append(self._run)

    def use(self, nats: object) -> None:
        """Set the option: a URL, `Nats(…)`, or None.

        Raises:
            InvalidInput: It is none of these.
            MissingExtra: The NATS client is not installed.
        """
        if nats is None:
            self.options = None
            return
        if not isinstance(nats, str | Nats):
            raise InvalidInput("nats=: give the URL of a NATS server, for example nats://localhost:4222, or Nats(…).")
        self.options = nats if isinstance(nats, Nats) else Nats(nats)
        try:
            if find_spec("nats") is not None:
                return
        except ModuleNotFoundError:
            pass
        raise missing_extra(ModuleNotFoundError(name="nats"), extra="nats", needed_by="Hark(nats=…)")

    async def _run(self) -> None:
        """While the app is open. On the clerk's loop. A command that only looks, or makes one call, does not connect:
        it would become the reader of the bucket for a moment."""
        if self.options is None or self._clerk.access != "migrate":
            return
        module = import_extra("hark.runtime.nats.bridge", extra="nats", needed_by="Hark(nats=…)")
        self.bridge = module.NatsBridge(self.options, self._clerk, self._max_payload)
        self._clerk.published = self.bridge.outgoing
        try:
            await self.bridge.run()
        finally:
            self._clerk.published = self.bridge = None
