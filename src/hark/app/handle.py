"""Handle: one instance, with the verbs of `Hark` that concern it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from hark.engine.turns.reply import Reply
from hark.model.outcomes import Duration
from hark.model.values import Delivery, Instance, Status

if TYPE_CHECKING:  # a TypeVar with a default: `Handle` alone means Handle[Any], also in strict mode
    from typing_extensions import TypeVar

    from hark.app.hark import Hark

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)


class Handle(Generic[R_co]):
    """An instance that was started, or reached by a signal or message.

    `Handle[R]` is the handle of an instance whose result is an `R`: `start` of a `@workflow` that returns an `R`
    gives one. For a `Machine`, or a definition given by name, it is `Handle[Any]`.

    Attributes:
        id: The id of the instance.

    Example:
        order = await app.start(checkout, {"order": 42})
        await order.signal("payment_confirmed", {"amount": 100})
        print(await order.result(timeout=5))
    """

    __slots__ = ("_app", "id")

    def __init__(self, app: Hark, id: str) -> None:
        self._app = app
        self.id = id

    def get(self) -> Reply[Instance]:
        """Read the instance as it is in the store now.

        Raises:
            NotFound: Retention has removed it.
        """
        return self._app.get(self.id)

    def result(self, timeout: Duration | None = None) -> Reply[R_co]:
        """Wait until the instance has finished, and return its result.

        Args:
            timeout: How long to wait, in seconds or as a `timedelta`; None waits forever.

        Raises:
            InstanceFailed: It failed; `.error` is its error.
            InstanceCancelled: It was cancelled; `.reason` says why.
            TimeoutError: It has not finished in time. It continues.
            NotFound: Retention has removed it.
        """
        return self._app.result(self, timeout)

    def wait_for(self, status: Status, timeout: Duration | None = None) -> Reply[Instance]:
        """Wait until the instance has a status.

        A status that the instance has only for a moment may be missed: wait for one in which it stays.

        Args:
            status: runnable, executing, awaiting_signal, awaiting_children, held, done, failed or cancelled.
            timeout: How long to wait, in seconds or as a `timedelta`; None waits forever.

        Returns:
            A reply with the `Instance`, in that status.

        Raises:
            Conflict: It has finished with another status; `.status` says which.
            TimeoutError: It has not reached the status in time. It continues.
            NotFound: Retention has removed it.
            InvalidInput: There is no such status.

        Example:
            await order.wait_for("awaiting_signal", timeout=5)
        """
        return self._app._wait_for_status(self.id, status, timeout)

    def signal(self, name: str, payload: Any = None, *, dedup_key: str | None = None) -> Reply[Delivery]:
        """Send the instance a signal. See `Hark.signal`.

        Args:
            name: The name of the signal.
            payload: Any JSON value.
            dedup_key: A key by which a repeated signal is recognised.

        Raises:
            NoTarget: The instance is finished or removed.
        """
        return self._app.signal(self.id, name, payload, dedup_key=dedup_key)

    def cancel(self, reason: str | None = None, *, force: bool = False) -> Reply[Instance]:
        """Cancel the instance and all its descendants, after their undo if they have one. See `Hark.cancel`.

        Args:
            reason: Why; recorded as the instance's error.
            force: End them at once, without undo.

        Raises:
            Conflict: It is already finished.
            NotFound: Retention has removed it.
        """
        return self._app.cancel(self.id, reason, force=force)

    def __repr__(self) -> str:
        return f"Handle({self.id!r})"


Target: TypeAlias = "str | Handle[Any] | Instance"
"""The target of a verb: an id, a correlation key, a handle or an instance."""
