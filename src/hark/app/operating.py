"""The verbs of operators: cancel and retry, sweep, export and forget, tokens and secrets."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any

from hark.app.arguments import check_limit, optional_name, target_of
from hark.app.core import Core
from hark.app.handle import Target
from hark.engine.turns.reply import Reply
from hark.kernel.requests import (
    Cancel,
    Grant,
    Reclaim,
    Retain,
    RetryInstance,
    Revoke,
    RotateSecret,
    SetVariables,
    Sweep,
)
from hark.model import json
from hark.model.errors import InvalidInput
from hark.model.names import check_name, micros, moment, new_id
from hark.model.outcomes import Duration
from hark.model.page import Page
from hark.model.tokens import check_scopes, digest, new_secret
from hark.model.values import Instance, Token
from hark.store.protocol import Store
from hark.views import instance_views


class OperationVerbs(Core):
    """cancel, retry, set_variables, sweep, export, forget, create_token, tokens, revoke_token, rotate_secret."""

    def cancel(self, target: Target, reason: str | None = None, *, force: bool = False) -> Reply[Instance]:
        """Cancel an instance and all its descendants, in one commit. A step that is executing loses its claim.

        An instance that has something to undo (`ctx.run(…, undo=…)`, or a machine with `on_cancel=`) runs its undo
        first and is `cancelled` when that has ended; so does each of its descendants. To cancel it again changes
        nothing meanwhile.

        Args:
            target: The instance: its id, its correlation key or its handle.
            reason: Why; recorded as the instance's error.
            force: End the instance and its descendants at once, without undo, or in the middle of it.

        Returns:
            A reply with the `Instance`: cancelled, or with the reason as `.cancel_reason` while its undo runs.

        Raises:
            NotFound: There is no such instance.
            Conflict: It is already finished; `.status` says how.

        Example:
            await app.cancel("order:42", "customer withdrew")
        """
        text = None if reason is None else json.check_text(reason, "reason")
        request = Cancel(target=target_of(target), reason=text, force=bool(force))
        return self._read_after(request, instance_views.get)

    def retry(self, target: Target) -> Reply[Instance]:
        """Run a failed instance again: a machine from its failed step, a function from the end of its journal. Of a
        process it resumes every incident, also while its other tokens go on.

        It takes back what the failure released: its correlation key, its waits and its awakeables. A question that the
        failure cancelled is pending again under the same id, so that links sent before work again; if its time has run
        out meanwhile, it times out now. Questions that were answered or withdrawn stay as they are.

        Args:
            target: The instance: its id, its correlation key or its handle.

        Returns:
            A reply with the `Instance`, runnable.

        Raises:
            NotFound: There is no such instance.
            Conflict: It is not failed (a process: it has no incident either); `.status` says what it is.
            Duplicate: Another live instance has its correlation key by now; `.holder` is its id.
        """
        return self._read_after(RetryInstance(target=target_of(target)), instance_views.get)

    def set_variables(self, target: Target, variables: Mapping[str, Any]) -> Reply[Instance]:
        """Set variables of a process, for example to correct them before a `retry`.

        Conditional events see the change. In a failed process they are stored, and used when it is retried.

        Args:
            target: The process instance: its id, its correlation key or its handle.
            variables: The new values by name. The other variables stay as they are.

        Returns:
            A reply with the `Instance`.

        Raises:
            NotFound: There is no such instance.
            Conflict: It is done or was cancelled; `.status` says which.
            InvalidInput: It is not a process, or `variables` is not an object.
            PayloadTooLarge: They are larger than `max_payload`.

        Example:
            await app.set_variables("order-42", {"total": 120})
        """
        payload = json.dump(variables, limit=self._max_payload, what="object of variables")
        if not payload.startswith("{"):
            raise InvalidInput('The variables must be an object: {"name": value, …}.')
        return self._read_after(SetVariables(target=target_of(target), payload=payload), instance_views.get)

    def sweep(self) -> Reply[None]:
        """Fire everything that is due now: delays, deadlines, expired leases. A running worker does so by itself."""

        async def all_of_it(store: Store) -> None:
            dead = await self._clerk.find_dead()
            if dead:
                await self._ask(Reclaim(owners=sorted(dead), leases=dead))
            more = True
            while more:
                fired: Reply[bool] = self._ask(Sweep())
                more = await fired

        return self._read(all_of_it)

    def export(self, *, before: datetime, limit: int = 1000) -> Reply[list[dict[str, Any]]]:
        """Read the complete histories of the instances that `forget` would remove next, oldest first; failed ones too.

        Args:
            before: Only instances that finished before this time, an aware `datetime`.
            limit: How many at most, up to 10,000.

        Returns:
            A reply with a dict for each instance: its attributes, its `events` and its `signals`.
        """
        until, size = moment(before, "before"), check_limit(limit)
        return self._read(lambda store: instance_views.export(store, until, size))

    def forget(self, *, before: datetime, limit: int = 1000) -> Reply[list[str]]:
        """Remove finished instances now, oldest first, instead of waiting for the option `retention` to do so.

        Failed instances are removed like all others, whatever the option `retention_failed` is.

        Args:
            before: Only instances that finished before this time, an aware `datetime`.
            limit: How many at most, up to 10,000.

        Returns:
            A reply with the ids of those removed.
        """
        until, size = moment(before, "before"), check_limit(limit)

        async def remove(store: Store) -> list[str]:
            ids = await instance_views.oldest(store, until, size)
            removed: Reply[list[str]] = self._ask(Retain(before=until, ids=ids, size=size))
            return await removed

        return self._read(remove)

    def create_token(
        self,
        scopes: str | Sequence[str] | Set[str],
        name: str | None = None,
        expires: Duration | datetime | None = None,
    ) -> Reply[Token]:
        """Create a token for the HTTP API.

        Args:
            scopes: What it allows, one or more of: read, signal, answer, operate, work, deploy.
            name: A name for the record: answers given with the token are by this name.
            expires: When it ends, an aware `datetime`; or how long it lasts, in seconds or as a `timedelta`.

        Returns:
            A reply with the `Token`. Its `.secret` is returned only here; the store keeps a hash.

        Raises:
            InvalidInput: A scope does not exist, or an argument is malformed.

        Example:
            token = await app.create_token(["read", "signal"], "ci", expires=86400)
            print(token.secret)
        """
        optional_name(name, "name")
        until = lasts = None
        if isinstance(expires, datetime):
            until = moment(expires, "expiry")
        elif expires is not None:
            lasts = micros(expires, "expiry", zero=False)
        secret = new_secret()
        granted = json.dump(check_scopes(scopes))
        request = Grant(id=new_id(), hash=digest(secret), name=name, scopes=granted, expires_at=until, lasts=lasts)
        return self._ask(request, lambda row: instance_views.token(row, secret))

    def tokens(self) -> Reply[Page[Token]]:
        """List all tokens, oldest first, expired and revoked ones too, without their secrets."""
        return self._read(instance_views.tokens)

    def revoke_token(self, id: str) -> Reply[Token]:
        """Revoke a token: it is refused from the next request on. Revoking it again changes nothing.

        Args:
            id: The `.id` of the token, not its secret.

        Raises:
            NotFound: There is no such token.
        """
        return self._ask(Revoke(id=check_name(id, "token id")), instance_views.token)

    def rotate_secret(self, *, drop_old: bool = False) -> Reply[int]:
        """Make a new secret in the store: links are signed with it from now on, in every process.

        Links that were already sent stay valid until they expire. Other processes use the new secret within a minute,
        and accept links that are signed with it at once.

        Args:
            drop_old: Whether to delete all older secrets: links that were already sent stop working, in other
                processes within a minute. For a secret that has leaked.

        Returns:
            A reply with the number of secrets that are valid now.

        Raises:
            InvalidInput: The app has a secret of its own, from `secret=` or `HARK_SECRET`; the store's is not used.
        """
        links = self._links
        if not links.uses_stored_secret:
            raise InvalidInput(
                "This app signs links with its own secret, not with the store's. To change it, put the new secret "
                "first and keep the old one: HARK_SECRET=new,old or Hark(secret='new,old')."
            )
        rotated: Reply[None] = self._ask(RotateSecret(secret=secrets.token_hex(32), drop_old=drop_old))

        async def read(store: Store) -> int:
            await rotated
            await links.read(store)
            return len(links.keys)

        return self._read(read)
