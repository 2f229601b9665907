"""The verbs that send: to one instance, to all subscribers of a broadcast, or to the receiver of a message."""

from __future__ import annotations

from typing import Any, overload

from hark.app.arguments import optional_name, target_of
from hark.app.core import Core
from hark.app.handle import Handle, Target
from hark.engine.turns.reply import Reply
from hark.kernel.requests import Deliver, Message, Publish
from hark.model import json
from hark.model.names import check_name, micros
from hark.model.outcomes import Duration
from hark.model.values import Delivery


class SignalVerbs(Core):
    """signal, broadcast, message."""

    def signal(
        self, target: Target, name: str, payload: Any = None, *, dedup_key: str | None = None
    ) -> Reply[Delivery]:
        """Put a signal into the inbox of an instance, and wake it if it waits for this name.

        Args:
            target: The instance: its id, its correlation key or its handle.
            name: The name of the signal.
            payload: Any JSON value.
            dedup_key: A key by which a repeated signal is recognised, per instance, as long as it is kept.

        Returns:
            A reply with a `Delivery`. Its `.status` is "woke" (the instance waited for it), "stored" (it is in the
            inbox, for a later wait) or "duplicate" (the dedup key was seen before; nothing changed).

        Raises:
            NoTarget: The instance is finished, or there is none.
            PayloadTooLarge: The payload is larger than `max_payload`.
            InvalidInput: An argument is malformed.

        Example:
            await app.signal("order:42", "payment_confirmed", {"amount": 100}, dedup_key="evt-7")
        """
        request = Deliver(
            target=target_of(target),
            name=check_name(name, "signal name"),
            payload=json.dump(payload, limit=self._max_payload),
            dedup_key=optional_name(dedup_key, "dedup key"),
        )
        return self._ask(request)

    def broadcast(self, name: str, payload: Any = None, *, dedup_key: str | None = None) -> Reply[int]:
        """Wake all instances that wait for this broadcast now, atomically.

        Above `broadcast_limit` subscribers, one commit marks them all and later commits deliver in chunks.

        Args:
            name: The name of the broadcast. A wait for a signal of the same name does not receive it.
            payload: Any JSON value.
            dedup_key: A key by which a repeated broadcast is recognised.

        Returns:
            A reply with the number of instances reached; for a duplicate, the number of the first time.

        Raises:
            PayloadTooLarge: The payload is larger than `max_payload`.
            InvalidInput: An argument is malformed.

        Example:
            reached = await app.broadcast("market-open", {"at": "09:00"})
        """
        request = Publish(
            name=check_name(name, "broadcast name"),
            payload=json.dump(payload, limit=self._max_payload),
            dedup_key=optional_name(dedup_key, "dedup key"),
        )
        return self._ask(request)

    @overload
    def message(
        self, name: str, correlation_key: str, payload: Any = None, *, dedup_key: str | None = None
    ) -> Reply[Handle[Any]]: ...
    @overload
    def message(
        self, name: str, correlation_key: str, payload: Any = None, *, ttl: Duration, dedup_key: str | None = None
    ) -> Reply[Handle[Any] | None]: ...
    def message(
        self,
        name: str,
        correlation_key: str,
        payload: Any = None,
        *,
        ttl: Duration = 0,
        dedup_key: str | None = None,
    ) -> Reply[Handle[Any]] | Reply[Handle[Any] | None]:
        """Deliver a message to the one instance that waits for it under this key.

        If no instance waits for it, it starts one of a process with such a start event, whose correlation key is the
        key of the message. Otherwise, with a `ttl`, it is kept for the first instance that waits for it within that
        time.

        Args:
            name: The name of the message.
            correlation_key: The key the receiver waits with.
            payload: Any JSON value.
            ttl: How long it is kept if there is no receiver, in seconds or as a `timedelta`; 0: not at all.
            dedup_key: A key by which a repeated message is recognised, among those with this name and correlation key:
                while it is kept, and after it was received until `retention`.

        Returns:
            A reply with the `Handle` of the receiver; None while the message is kept. For a duplicate, that of the
            first time.

        Raises:
            NoTarget: No instance waits for this message under this key, and there is no `ttl`.
            Duplicate: It would start an instance, and another one holds the key; `.holder` is its id.
            PayloadTooLarge: The payload is larger than `max_payload`.
            InvalidInput: An argument is malformed.

        Example:
            receiver = await app.message("payment", "order-42", {"amount": 120}, ttl=3600)
        """
        request = Message(
            name=check_name(name, "message name"),
            key=check_name(correlation_key, "correlation key"),
            payload=json.dump(payload, limit=self._max_payload),
            ttl=micros(ttl, "ttl", zero=True),
            dedup_key=optional_name(dedup_key, "dedup key"),
        )
        return self._ask(request, lambda id: None if id is None else self._handle(id))
