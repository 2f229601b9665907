"""Place pools below each other, each around what is in its process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hark.programs.bpmn.drawing.drawing_scene import LANES, Box, Figure
from hark.programs.bpmn.layout.layout import LANE_HEAD, PAD, Joins, lay_out
from hark.programs.bpmn.layout.layout_columns import APART, Part

_CLOSED, _NARROWEST = 60.0, 400.0


def lay_out_pools(
    pools: Sequence[Figure], inside: Mapping[Figure, Sequence[Figure]], others: Sequence[Figure], joins: Joins
) -> Part:
    """Place pools and all that is in them.

    Args:
        pools: From top to bottom.
        inside: What is directly in the process of each pool; a pool with nothing in it is closed.
        others: Texts of the collaboration, which go below the pools.
        joins: The wires of the file by scope.
    """
    whole = Part()
    parts = {pool: lay_out(found, joins) for pool in pools if (found := inside.get(pool, ()))}
    laned = {pool for pool in parts if any(figure.tag in LANES for figure in parts[pool].figures)}
    room = {pool: LANE_HEAD + part.width + (0 if pool in laned else 2 * PAD) for pool, part in parts.items()}
    whole.width = max([_NARROWEST, *room.values()])
    y = 0.0
    for pool in pools:
        part = parts.get(pool)
        pool.expanded = part is not None
        height = _CLOSED
        if part is not None:
            part.move(LANE_HEAD + (0 if pool in laned else PAD), y + (0 if pool in laned else PAD))
            height = part.height + (0 if pool in laned else 2 * PAD)
            for figure in part.figures:
                if figure.tag in LANES:
                    figure.box = figure.place._replace(width=whole.width - figure.place.x)
            whole.take(part)
        pool.box = Box(0, y, whole.width, height)
        whole.figures.append(pool)
        y += height + APART * 1.5
    whole.height = y - APART * 1.5
    if others:
        below = lay_out(others, joins)
        below.move(0, y)
        whole.take(below)
        whole.height = y + below.height
    return whole
