"""Automatic starts of definitions: what a deployed definition starts by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel.requests import Deploy

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


def replace(turn: Turn, deploy: Deploy, version: int) -> None:
    """The automatic starts of this definition are those of the deploy from now on; none if it is undeployed."""
