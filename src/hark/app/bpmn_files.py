"""Check and draw BPMN files, for the doors. The meaning of a file is decided in programs/bpmn/file/."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hark.app.bpmn_deployment import read_bpmn_file
from hark.model.problem import Problem
from hark.programs.bpmn.drawing.bpmn_drawing import draw
from hark.programs.bpmn.file.xml_tree import parse_xml


@dataclass(frozen=True)
class CheckedFile:
    """The result of checking a BPMN file: what a deploy of it would do.

    Attributes:
        processes: The ids of its processes, in the order of the file.
        ignored: Its extensions that Hark does not run, which a deploy ignores.
    """

    processes: list[str]
    ignored: list[Problem]


def check_bpmn(data: bytes, *, ignore_extensions: bool = False) -> CheckedFile:
    """Check a BPMN file as a deploy does.

    Raises:
        InvalidDefinition: A deploy refuses it; `.problems` says why.
    """
    now = time.time_ns() // 1000
    file, requests = read_bpmn_file(data, now, ignore_extensions=ignore_extensions)
    return CheckedFile([request.name for request in requests], list(file.ignored))


def render_bpmn(data: bytes, process: str | None = None) -> str:
    """The diagram of a BPMN file as SVG, also of one that a deploy refuses.

    Args:
        data: The file.
        process: The id of the process to draw; None draws the whole file.

    Raises:
        InvalidDefinition: It is not XML, or not BPMN.
        NotFound: It has no such process.
    """
    return draw(parse_xml(data).text, process)
