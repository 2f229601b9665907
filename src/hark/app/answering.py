"""The verbs about awakeables: answer one, read one, list them."""

from __future__ import annotations

from typing import Any

from hark.app.arguments import (
    check_limit,
    check_word,
    optional_name,
    optional_seconds,
    optional_target,
    target_of,
)
from hark.app.core import Core
from hark.app.handle import Target
from hark.engine.callers.waiting import AwakeableOpen
from hark.engine.turns.reply import Reply
from hark.kernel.requests import AssignAwakeable, SettleAwakeable
from hark.model import json
from hark.model.decisions import Settle
from hark.model.errors import NotFound
from hark.model.names import check_awakeable_id, check_name
from hark.model.outcomes import Duration
from hark.model.page import Page
from hark.model.values import Awakeable, AwakeableStatus
from hark.store import reads
from hark.store.protocol import Store
from hark.store.statements import AwakeableRow
from hark.views import instance_views


class AnswerVerbs(Core):
    """resolve, reject, claim, unclaim, awakeable, awakeables, wait_for_awakeable."""

    def resolve(
        self, awakeable_id: str, payload: Any = None, *, by: str | None = None, via: str = "python"
    ) -> Reply[Awakeable]:
        """Answer an awakeable. It settles once: the first answer that matches its schema counts.

        Args:
            awakeable_id: The id of the awakeable, `prom_1…`.
            payload: The answer, a JSON value that matches the schema of the awakeable.
            by: The name of the person or program that answers; it must be among the assignees, if there are any.
                Without a name the caller is trusted.
            via: Which door the answer came through, for the record.

        Returns:
            A reply with the `Awakeable`, settled.

        Raises:
            NotFound: There is no such awakeable.
            AlreadySettled: It is settled; `.status`, `.by` and `.at` say how.
            InvalidAnswer: The payload does not match the schema; `.problems` lists why. The awakeable stays open.
            NotAssigned: `by` is not one of the assignees. The awakeable stays open.

        Example:
            await app.resolve(approval.id, {"approved": True}, by="ann")
        """
        text = json.dump(payload, limit=self._max_payload)
        settle = Settle(check_awakeable_id(awakeable_id), "RESOLVED", text, None, by, via)
        return self._ask(_settlement(settle), self._show)

    def reject(
        self, awakeable_id: str, error: str = "rejected", *, by: str | None = None, via: str = "python"
    ) -> Reply[Awakeable]:
        """Reject an awakeable: the function that waits for it gets `AwakeableRejected`.

        Args:
            awakeable_id: The id of the awakeable.
            error: The reason, text.
            by: The name of the person or program that rejects it, as for `resolve`.
            via: Which door the rejection came through, for the record.

        Returns:
            A reply with the `Awakeable`, settled.

        Raises:
            NotFound: There is no such awakeable.
            AlreadySettled: It is settled; `.status`, `.by` and `.at` say how.
            NotAssigned: `by` is not one of the assignees. The awakeable stays open.
        """
        reason = json.check_text(error, "error")
        settle = Settle(check_awakeable_id(awakeable_id), "REJECTED", None, reason, by, via)
        return self._ask(_settlement(settle), self._show)

    def claim(self, awakeable_id: str, by: str, *, via: str = "python") -> Reply[Awakeable]:
        """Claim an awakeable, such as a user task of a process: record who works on it.

        A claim keeps others from claiming, and is advice otherwise: any person who may answer still can. To claim it
        again by the same name changes nothing.

        Args:
            awakeable_id: The id of the awakeable.
            by: The name of the person; it must be among the assignees, if there are any and no groups.
            via: Which door the claim came through, for the record.

        Returns:
            A reply with the `Awakeable`; its `.claimed_by` is `by`.

        Raises:
            NotFound: There is no such awakeable.
            AlreadyClaimed: Another person has claimed it; `.by` is that person.
            AlreadySettled: It is settled; `.status`, `.by` and `.at` say how.
            NotAssigned: `by` is not one of the assignees.

        Example:
            task = await app.claim(question.id, by="ann")
        """
        id, name = check_awakeable_id(awakeable_id), check_name(by, "by")
        return self._ask(AssignAwakeable(awakeable=id, by=name, via=check_name(via, "via")), self._show)

    def unclaim(self, awakeable_id: str, *, via: str = "python") -> Reply[Awakeable]:
        """Give a claimed awakeable back, so that another person can claim it. Without a claim this changes nothing.

        Args:
            awakeable_id: The id of the awakeable.
            via: Which door it came through, for the record.

        Returns:
            A reply with the `Awakeable`; its `.claimed_by` is None.

        Raises:
            NotFound: There is no such awakeable.
            AlreadySettled: It is settled; `.status`, `.by` and `.at` say how.
        """
        request = AssignAwakeable(awakeable=check_awakeable_id(awakeable_id), via=check_name(via, "via"))
        return self._ask(request, self._show)

    def _show(self, row: AwakeableRow) -> Awakeable:
        return instance_views.awakeable(row, self._links.url)

    def awakeable(self, id: str) -> Reply[Awakeable]:
        """Read one awakeable.

        Args:
            id: The id of the awakeable.

        Raises:
            NotFound: There is no such awakeable.
        """
        wanted = check_awakeable_id(id)

        async def one(store: Store) -> Awakeable:
            found = await store.read(reads.read_awakeables, ids=[wanted])
            if not found:
                raise NotFound(f"There is no awakeable {wanted!r}. Check the id.")
            await self._links.find_address(store)
            return self._show(found[0])

        return self._read(one)

    def wait_for_awakeable(self, job: Target, timeout: Duration | None = None) -> Reply[Awakeable]:
        """Wait until an instance has an open awakeable, and return the oldest one.

        Args:
            job: The instance: its id, its key or its handle.
            timeout: How long to wait, in seconds or as a `timedelta`; None waits forever.

        Returns:
            A reply with the `Awakeable`, PENDING.

        Raises:
            Conflict: The instance has finished, and asks nothing any more; `.status` says how.
            TimeoutError: It has opened none in time. It continues.
            NotFound: There is no such instance.

        Example:
            question = await app.wait_for_awakeable(job=deploy, timeout=5)
            await app.resolve(question.id, {"approved": True})
        """
        reply: Reply[Awakeable] = Reply(self._show)
        self._clerk.wait_until(target_of(job), AwakeableOpen(), optional_seconds(timeout, "timeout"), reply)
        return reply

    def awakeables(
        self, *, job: Target | None = None, status: str | None = None, limit: int = 100, after: str | None = None
    ) -> Reply[Page[Awakeable]]:
        """List awakeables, newest first. Settled ones are listed until retention removes them.

        Those of one commit are in the order of their instances' ids, and those of one instance in the order of their
        numbers, the last first. A page of large answers ends early, with the one that reaches 8 MiB; go on with
        `after=page.next` until that is None.

        Args:
            job: Only those of this instance: its id, its key or its handle.
            status: Only those with this status: PENDING, RESOLVED, REJECTED, TIMEOUT or CANCELLED.
            limit: How many at most, up to 10,000.
            after: The `.next` of the page before, which is the id of its last awakeable.

        Returns:
            A reply with a `Page` of `Awakeable`s.

        Raises:
            NotFound: There is no such instance, or the awakeable `after` has been removed.
        """
        size, wanted = check_limit(limit), optional_target(job)
        optional_name(after, "after")
        check_word(status, "status", AwakeableStatus)

        async def page(store: Store) -> Page[Awakeable]:
            await self._links.find_address(store)
            return await instance_views.awakeable_page(store, self._links.url, wanted, status, size, after)

        return self._read(page)


def _settlement(settle: Settle) -> SettleAwakeable:
    optional_name(settle.by, "by")
    optional_name(settle.via, "via")
    return SettleAwakeable(settle=settle)
