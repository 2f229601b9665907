"""Deploy definitions that are data, and undeploy them.

A name is reserved, so two deploys of one name come one after the other: the same source gives one version, two sources
give two. A definition keeps all its versions for the instances that run them. The definitions of one file are a group:
all of them are deployed, or none is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hark.kernel import definitions, triggers
from hark.kernel.requests import DefinitionRow, Deploy, DeployGroup, Request
from hark.model.errors import InvalidDefinition, NotFound
from hark.model.lanes import INTERPRETED
from hark.store import statements as sql
from hark.store.protocol import Conflicted

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_Newest = dict[str, tuple[int, str, str | None]]  # version, kind and digest by name


def plan(turn: Turn) -> None:
    for request in turn.batch.of(Deploy):
        turn.locks.reserve(f"definition\0{request.name}")
    for group in turn.batch.of(DeployGroup):
        for request in group.deploys:
            turn.locks.reserve(f"definition\0{request.name}")


async def apply(turn: Turn, requests: Sequence[Request]) -> None:
    """Carry out the deploys among the requests of the turn, in the order of the calls."""
    if not turn.batch.of(Deploy) and not turn.batch.of(DeployGroup):
        return
    asked = [request for request in requests if isinstance(request, Deploy | DeployGroup)]
    groups = [request.deploys if isinstance(request, DeployGroup) else [request] for request in asked]
    names = sorted({deploy.name for group in groups for deploy in group})
    found = await turn.tx.fetch(sql.newest_definitions, names=names)
    newest: _Newest = {name: (version, kind, digest) for name, version, kind, digest in found}
    rows: list[DefinitionRow] = []
    undeployed: dict[str, int | None] = {}
    for request, group in zip(asked, groups, strict=True):
        refusal = next((error for error in (_refusal(deploy, newest) for deploy in group) if error is not None), None)
        if refusal is not None:
            request.result = refusal
            continue
        for deploy in group:
            if not deploy.remove:
                rows += _new_version(deploy, newest)
            undeployed[deploy.name] = turn.now if deploy.remove else None
            deploy.result = newest[deploy.name][0]
            triggers.replace(turn, deploy, deploy.result)
        if isinstance(request, DeployGroup):
            request.result = [deploy.result for deploy in group]
    if rows:
        written = await turn.tx.fetch(sql.deploy_definitions, rows)
        if len(written) < len(rows):
            raise Conflicted("another process has just registered a definition of the same name and version")
    if undeployed:
        await turn.tx.fetch(sql.set_undeployed, sorted(undeployed.items()))
        await definitions.refresh(turn)


def _refusal(request: Deploy, newest: _Newest) -> InvalidDefinition | NotFound | None:
    known = newest.get(request.name)
    if request.remove:
        if known is None:
            return NotFound(f"There is no definition {request.name!r}: nothing was undeployed.")
        if known[1] in INTERPRETED:
            return None
        return InvalidDefinition(
            f"{request.name!r} is a {known[1]}, which is code: it cannot be undeployed. Stop the workers that have it.",
            problems=[],
        )
    if known is not None and known[1] != request.kind:
        return InvalidDefinition(
            f"{request.name!r} is the name of a {known[1]}; a {request.kind} needs another name.", problems=[]
        )
    return None


def _new_version(request: Deploy, newest: _Newest) -> list[DefinitionRow]:
    """The row of a new version, or none if the newest one has the same source."""
    known = newest.get(request.name)
    if known is not None and known[2] == request.digest:
        return []
    version = 1 if known is None else known[0] + 1
    newest[request.name] = (version, request.kind, request.digest)
    return [
        DefinitionRow(
            request.name, version, request.kind, request.queue, request.initial, request.source, request.digest,
            request.on_cancel,
        )
    ]  # fmt: skip
