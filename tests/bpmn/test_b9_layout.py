"""The automatic layout: nothing overlaps, flows have right angles, and what is inside stays inside."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hark.programs.bpmn.drawing.drawing_elements import read_scene
from hark.programs.bpmn.drawing.drawing_panels import panels_of
from hark.programs.bpmn.drawing.drawing_scene import LANES, POOLS, SUBPROCESSES, Box, Figure, Panel, Wire
from hark.programs.bpmn.file.xml_tree import parse_xml
from tests.bpmn.small_files import bpmn_file, chain, definitions
from tests.bpmn.test_b9_diagram import text_of

TAGS = ("task", "userTask", "exclusiveGateway", "parallelGateway", "endEvent", "intermediateThrowEvent", "subProcess")
NAMES = ("", "Pay", "A name that is long enough for several lines of text", "Unterbrechungsfreiestromversorgung")


def laid_out(xml: str) -> Panel:
    [panel] = panels_of(read_scene(parse_xml(xml).root), None)
    return panel


def placed(panel: Panel) -> dict[str, Box]:
    return {figure.key: figure.place for figure in panel.figures}


def overlap(one: Box, other: Box) -> bool:
    return one.x < other.right and other.x < one.right and one.y < other.bottom and other.y < one.bottom


def check(panel: Panel) -> None:
    """What every layout keeps to."""
    nodes = [figure for figure in panel.figures if figure.tag not in LANES | POOLS]
    for one, other in combinations(nodes, 2):
        if one.parent is other.parent and one.host is not other and other.host is not one:
            assert not overlap(one.place, other.place), (one.key, other.key)
    for figure in nodes:
        if figure.parent is not None and figure.parent.tag in SUBPROCESSES:
            assert figure.parent.place.holds(figure.place), figure.key
        if figure.host is not None:
            assert abs(figure.place.center.y - figure.host.place.bottom) < 1
    for wire in panel.wires:
        if wire.tag == "bpmn:sequenceFlow":
            check_flow(wire)


def check_flow(wire: Wire) -> None:
    for one, other in pairwise(wire.points):
        assert abs(one.x - other.x) < 0.6 or abs(one.y - other.y) < 0.6, wire.key
    for end, point in ((wire.source, wire.points[0]), (wire.target, wire.points[-1])):
        assert isinstance(end, Figure)
        assert end.place.grown(0.6).holds(Box(*point, 0, 0)), wire.key


@st.composite
def scopes(draw: st.DrawFn, prefix: str = "n", depth: int = 0) -> str:
    """The inside of a process or sub-process: any nodes, joined by any flows, also back, twice, and to themselves."""
    parts: list[str] = []
    count = draw(st.integers(1, 7 if depth == 0 else 3))
    sources: list[str] = []
    for number in range(count):
        id = f"{prefix}{number}"
        tag = draw(st.sampled_from(TAGS if depth < 2 else TAGS[:-1]))
        name = draw(st.sampled_from(NAMES))
        inside = draw(scopes(f"{id}.", depth + 1)) if tag == "subProcess" and draw(st.booleans()) else ""
        parts.append(f'<{tag} id="{id}" name="{name}">{inside}</{tag}>')
        sources.append(id)
        if tag in ("task", "subProcess"):
            for event in range(draw(st.integers(0, 3))):
                parts.append(f'<boundaryEvent id="{id}b{event}" name="{name}" attachedToRef="{id}"/>')
                sources.append(f"{id}b{event}")
    targets = [f"{prefix}{number}" for number in range(count)]
    pairs = draw(st.lists(st.tuples(st.sampled_from(sources), st.sampled_from(targets)), max_size=2 * count))
    for number, (source, target) in enumerate(pairs):
        name = draw(st.sampled_from(NAMES))
        parts.append(f'<sequenceFlow id="{prefix}f{number}" name="{name}" sourceRef="{source}" targetRef="{target}"/>')
    return "".join(parts)


@settings(max_examples=60, deadline=None)
@given(scopes())
def test_b9_no_layout_has_overlapping_nodes(content: str) -> None:
    check(laid_out(bpmn_file(content)))


@pytest.mark.parametrize("name", ["claim_bare", "shop_pools", "symbols"])
def test_b9_files_without_coordinates_are_laid_out(name: str) -> None:
    xml = text_of(name)
    begin, end = xml.find("<bpmndi:BPMNDiagram"), xml.rfind("</bpmndi:BPMNDiagram>")
    check(laid_out(xml if begin < 0 else xml[:begin] + xml[end + len("</bpmndi:BPMNDiagram>") :]))


def test_b9_a_chain_is_a_straight_line_from_left_to_right() -> None:
    panel = laid_out(bpmn_file(chain('<task id="a"/>', '<userTask id="b"/>')))
    boxes = placed(panel)
    assert [boxes[key].x for key in "sabe"] == sorted(boxes[key].x for key in "sabe")
    assert len({boxes[key].center.y for key in "sabe"}) == 1
    assert all(len(wire.points) == 2 for wire in panel.wires)


def test_b9_a_loop_goes_around_below_what_it_repeats() -> None:
    panel = laid_out(
        bpmn_file(
            chain('<task id="a"/>', '<exclusiveGateway id="b"/>')
            + '<sequenceFlow id="back" sourceRef="b" targetRef="a"/>'
        )
    )
    back = next(wire for wire in panel.wires if wire.key == "back")
    assert max(point.y for point in back.points) > placed(panel)["a"].bottom
    check(panel)


def test_b9_branches_stand_beside_each_other_in_the_order_of_the_file() -> None:
    panel = laid_out(
        bpmn_file(
            '<startEvent id="s"/><parallelGateway id="g"/><task id="a"/><task id="b"/><task id="c"/>'
            '<sequenceFlow sourceRef="s" targetRef="g"/>'
            + "".join(f'<sequenceFlow sourceRef="g" targetRef="{key}"/>' for key in "abc")
        )
    )
    boxes = placed(panel)
    assert len({boxes[key].x for key in "abc"}) == 1
    assert boxes["a"].y < boxes["b"].y < boxes["c"].y
    assert boxes["b"].center.y == pytest.approx(boxes["g"].center.y)


def test_b9_lanes_and_pools_hold_their_nodes() -> None:
    xml = text_of("shop_pools")
    panel = laid_out(xml[: xml.find("<bpmndi:")] + "</definitions>")
    boxes = placed(panel)
    for lane, nodes in {"sid-sales": ["sid-start", "sid-check"], "sid-accounting": ["sid-bill", "sid-end"]}.items():
        assert boxes["sid-shop-pool"].holds(boxes[lane])
        assert all(boxes[lane].holds(boxes[node]) for node in nodes)
    assert not overlap(boxes["sid-sales"], boxes["sid-accounting"])
    assert not overlap(boxes["sid-shop-pool"], boxes["sid-bank-pool"])


def test_b9_a_sub_process_without_coordinates_inside_makes_the_layout_automatic() -> None:
    spaces = 'xmlns:di="http://www.omg.org/spec/BPMN/20100524/DI" xmlns:dc="http://www.omg.org/spec/DD/20100524/DC"'
    shapes = "".join(
        f'<di:BPMNShape bpmnElement="{key}"><dc:Bounds x="{x}" y="{x}" width="{size}" height="{size}"/></di:BPMNShape>'
        for key, x, size in (("o", 0, 300), ("a", 10, 50))
    )
    xml = definitions(
        '<process id="p"><subProcess id="o"><task id="a"/><task id="b"/></subProcess></process>'
        f'<di:BPMNDiagram {spaces}><di:BPMNPlane bpmnElement="p">{shapes}</di:BPMNPlane></di:BPMNDiagram>'
    )
    panel = laid_out(xml)
    check(panel)
    assert set(placed(panel)) == {"o", "a", "b"}


def test_b9_a_wide_graph_with_long_flows_is_laid_out_in_bounded_room() -> None:
    count = 120
    nodes = "".join(f'<task id="t{number}"/>' for number in range(count))
    flows = "".join(f'<sequenceFlow sourceRef="t{n}" targetRef="t{n + 1}"/>' for n in range(count - 1))
    long = "".join(f'<sequenceFlow sourceRef="t{n}" targetRef="t{count - 1 - n}"/>' for n in range(count // 2))
    panel = laid_out(bpmn_file(nodes + flows + long))
    assert len(panel.wires) == count - 1 + count // 2
    for wire in panel.wires:
        check_flow(wire)
