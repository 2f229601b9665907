"""Small BPMN files for tests of reading."""

from itertools import pairwise

import pytest

from hark import InvalidDefinition
from hark.model.problem import Problem
from hark.programs.bpmn.bpmn_spec import BpmnSpec, NodeSpec
from hark.programs.bpmn.file import BpmnFile, read_bpmn

NAMESPACES = (
    'xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    'xmlns:camunda="http://camunda.org/schema/1.0/bpmn" xmlns:zeebe="http://camunda.org/schema/zeebe/1.0" '
    'xmlns:flowable="http://flowable.org/bpmn" xmlns:activiti="http://activiti.org/bpmn" xmlns:acme="urn:acme"'
)


def definitions(content: str) -> str:
    """A file with this content; its first line is line 2."""
    return f'<definitions {NAMESPACES} id="defs" targetNamespace="urn:test">\n{content}\n</definitions>'


def bpmn_file(content: str, *, around: str = "", attributes: str = "") -> str:
    """A file with one process `p`; the first line of its content is line 3."""
    return definitions(f'<process id="p" {attributes}>\n{content}\n</process>\n{around}')


def chain(*nodes: str) -> str:
    """A start event `s`, the nodes with their ids in order, and an end event `e`, connected by flows."""
    ids = ["s", *(node.partition('id="')[2].partition('"')[0] for node in nodes), "e"]
    flows = "".join(
        f'<sequenceFlow id="f{number}" sourceRef="{source}" targetRef="{target}"/>\n'
        for number, (source, target) in enumerate(pairwise(ids), 1)
    )
    return "\n".join(['<startEvent id="s"/>', *nodes, '<endEvent id="e"/>', flows])


def ext(content: str) -> str:
    """Extension elements."""
    return f"<extensionElements>{content}</extensionElements>"


def extended(tag: str, extensions: str, *, attributes: str = "", content: str = "") -> str:
    """The element `n` with these extension elements."""
    return f'<{tag} id="n" {attributes}>{ext(extensions)}{content}</{tag}>'


def read(text: str | bytes, *, ignore_extensions: bool = False) -> BpmnFile:
    return read_bpmn(text, ignore_extensions=ignore_extensions)


def spec_of(content: str, *, around: str = "", ignore_extensions: bool = False) -> BpmnSpec:
    """The spec of the process `p` with this content."""
    [spec] = read(bpmn_file(content, around=around), ignore_extensions=ignore_extensions).processes
    return spec


def node_of(*nodes: str, around: str = "", id: str | None = None, ignore_extensions: bool = False) -> NodeSpec:
    """The first of these nodes in a chain, or the one with this id."""
    spec = spec_of(chain(*nodes), around=around, ignore_extensions=ignore_extensions)
    return spec.nodes[1] if id is None else next(node for node in spec.nodes if node.id == id)


def problems_of(text: str | bytes, *, ignore_extensions: bool = False) -> list[Problem]:
    """The problems of a file, which must have some."""
    with pytest.raises(InvalidDefinition) as caught:
        read(text, ignore_extensions=ignore_extensions)
    problems: list[Problem] = caught.value.problems
    assert problems
    assert all(str(problem) in str(caught.value) for problem in problems[:20])
    return problems
