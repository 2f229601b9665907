"""The diagram of a BPMN file: its symbols, from its own coordinates, with what is marked on it."""

import os
import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hark import InvalidDefinition, NotFound
from hark.programs.bpmn.diagram_marks import Marks
from hark.programs.bpmn.drawing.bpmn_drawing import draw
from hark.programs.bpmn.file import read_bpmn
from hark.programs.svg import COLORS
from tests.bpmn.small_files import bpmn_file, definitions

FILES = Path(__file__).parent / "files"
CONFORMANCE = Path(os.environ.get("HARK_CONFORMANCE", Path(__file__).parents[2] / "../shared/conformance")) / "bpmn"
SVG = "{http://www.w3.org/2000/svg}"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def text_of(name: str) -> str:
    return (FILES / f"{name}.bpmn").read_text("utf-8")


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def drawn(svg: str) -> dict[str, ElementTree.Element]:
    """The groups of the elements, by id. Each is there once."""
    groups = [group for group in parsed(svg).iter(f"{SVG}g") if "data-element" in group.attrib]
    count = Counter(group.attrib["data-element"] for group in groups)
    assert [key for key, number in count.items() if number > 1] == []
    return {group.attrib["data-element"]: group for group in groups}


def outline(group: ElementTree.Element) -> dict[str, str]:
    """The attributes of the outline of a group: its first shape."""
    return next(child.attrib for child in group if child.tag in (f"{SVG}rect", f"{SVG}circle", f"{SVG}path"))


def title(group: ElementTree.Element) -> str:
    return group.findtext(f"{SVG}title") or ""


def words(svg: str) -> str:
    return " ".join(" ".join(text.itertext()) for text in parsed(svg).iter(f"{SVG}text"))


def ids_to_draw(xml: str) -> set[str]:
    """The ids of all elements in the file that have a shape or edge."""
    return set(re.findall(r'bpmnElement="([^"]+)"', xml)) - set(
        re.findall(r'<bpmndi:BPMNPlane[^>]*bpmnElement="([^"]+)"', xml)
    ) | set(re.findall(r'BPMNShape[^>]*bpmnElement="([^"]+)"', xml))


@pytest.mark.parametrize("name", ["symbols", "order_cloud", "shop_pools"])
def test_b9_every_element_with_coordinates_is_drawn_once(name: str) -> None:
    xml = text_of(name)
    assert set(drawn(draw(xml))) >= ids_to_draw(xml)


@pytest.mark.parametrize("name", ["symbols", "order_cloud", "shop_pools", "claim_bare"])
def test_b9_the_same_file_gives_the_same_picture(name: str) -> None:
    marks = Marks(tokens={"pay": 1}, waits=["pay"])
    assert draw(text_of(name), marks=marks) == draw(text_of(name), marks=marks)


@pytest.mark.parametrize("name", ["symbols", "order_cloud", "shop_pools", "claim_bare"])
def test_b9_a_picture_says_what_it_is_and_refers_to_nothing(name: str) -> None:
    svg = draw(text_of(name))
    root = parsed(svg)
    assert root.attrib["role"] == "img"
    assert [child.tag for child in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert root[0].text
    assert "sequence flow" in (root[1].text or "")
    assert all(title(group) for group in drawn(svg).values())
    assert not [one for one in root.iter() if one.tag in (f"{SVG}script", f"{SVG}image", f"{SVG}foreignObject")]
    assert not [key for one in root.iter() for key in one.attrib if key.endswith(("href", "style")) or key == "id"]
    assert "url(" not in svg
    assert "@import" not in svg
    assert "prefers-color-scheme:dark" in svg


def test_b9_shapes_and_flows_are_where_the_file_has_them() -> None:
    groups = drawn(draw(text_of("order_cloud")))
    charge, ask = outline(groups["Activity_charge"]), outline(groups["Activity_ask"])
    assert float(ask["x"]) - float(charge["x"]) == 660 - 240
    assert float(ask["y"]) - float(charge["y"]) == 220 - 80
    assert (charge["width"], charge["height"]) == ("100", "80")
    flow = [float(one) for one in NUMBER.findall(outline(groups["Flow_again"])["d"])]
    assert flow[:6] == [420, 95, 420, 40, 290, 40]


def test_b9_the_inside_of_a_closed_sub_process_is_drawn_below_with_its_name() -> None:
    svg = draw(text_of("order_cloud"), "order_cloud")
    groups = drawn(svg)
    assert "In Pack and ship" in words(svg)
    assert {"Activity_ship", "Activity_pack", "Flow_i1"} <= set(groups)
    ship = groups["Activity_ship"]
    assert ship.find(f"{SVG}rect").attrib["class"] == "shape"  # closed: not a ground that others stand on


def test_b9_only_the_diagram_of_the_process_that_is_asked_for_is_drawn() -> None:
    one = bpmn_file('<startEvent id="here"/>')
    two = one.replace("</definitions>", '<process id="q"><startEvent id="there"/></process></definitions>')
    assert set(drawn(draw(two))) == {"here", "there"}
    assert set(drawn(draw(two, "q"))) == {"there"}
    with pytest.raises(NotFound, match=r"'r'.*p, q"):
        draw(two, "r")


def test_b9_a_process_in_a_pool_is_drawn_with_the_pools_around_it() -> None:
    groups = drawn(draw(text_of("shop_pools"), "bank"))
    assert {"sid-customer", "sid-shop-pool", "sid-bank-pool", "sid-m1", "sid-note-line"} <= set(groups)
    assert title(groups["sid-customer"]) == "Pool: Customer"


def test_b9_events_have_thin_double_and_thick_rings_and_dashed_ones_do_not_interrupt() -> None:
    groups = drawn(draw(text_of("symbols")))
    rings = {key: [one.attrib["class"] for one in groups[key].iter(f"{SVG}circle")] for key in groups}
    assert rings["Start_none"] == ["shape"]
    assert rings["Catch_timer"] == ["shape", "line"]
    assert rings["End_none"] == ["shape thick"]
    assert rings["On_timer"] == ["shape", "line"]
    assert rings["While_timer"] == ["shape dashed", "line dashed"]
    assert rings["EventSub_start"] == ["shape dashed"]


def test_b9_every_kind_of_event_task_marker_and_gateway_has_a_symbol_of_its_own() -> None:
    groups = drawn(draw(text_of("symbols")))

    def symbol(key: str) -> str:
        paths = [path.attrib for path in groups[key].iter(f"{SVG}path")]
        return " ".join(f"{one['class']} {one['d']}" for one in paths if key[0] != "G" or one["class"] != "shape")

    for prefix in ("Start_", "Catch_", "Throw_", "End_", "On_", "T_", "M_", "G_"):
        keys = [key for key in groups if key.startswith(prefix)]
        symbols = Counter(symbol(key) for key in keys)
        assert len(keys) > 3
        assert [one for one, number in symbols.items() if number > 1] == [], prefix
    assert symbol("Catch_message") != symbol("Throw_message")  # filled
    assert symbol("G_plain") == ""


def test_b9_borders_tell_calls_transactions_and_event_sub_processes() -> None:
    groups = drawn(draw(text_of("symbols")))
    assert outline(groups["Call"])["class"] == "shape call"
    assert len(list(groups["Transaction"].iter(f"{SVG}rect"))) == 2
    assert outline(groups["EventSub"])["class"] == "scope rim"


def test_b9_flows_show_their_default_and_their_condition() -> None:
    groups = drawn(draw(text_of("symbols")))
    count = {key: len(list(groups[key].iter(f"{SVG}path"))) for key in ("Flow_plain", "Flow_default", "Flow_condition")}
    assert count == {"Flow_plain": 2, "Flow_default": 3, "Flow_condition": 3}
    assert "more than 100" in words(draw(text_of("symbols")))


def test_b9_names_are_text_and_never_markup() -> None:
    name = "&lt;script>alert(&quot;1&quot;)&lt;/script> &amp; ]]&gt; &apos;"
    svg = draw(bpmn_file(f'<userTask id="t" name="{name}"/><startEvent id="a&quot;b" name="{name}"/>'))
    assert "<script" not in svg
    groups = drawn(svg)
    assert title(groups["t"]) == 'User task: <script>alert("1")</script> & ]]> \''
    assert 'a"b' in groups


def test_b9_long_names_are_wrapped_and_cut() -> None:
    svg = draw(bpmn_file(f'<task id="t" name="{"word " * 5000}"/><startEvent id="s" name="{"x" * 9000}"/>'))
    assert len(svg) < 20_000
    assert "…" in words(svg)


def test_b9_the_colors_of_the_file_are_kept_if_they_are_colors() -> None:
    xml = text_of("order_cloud")
    charge = outline(drawn(draw(xml))["Activity_charge"])
    assert (charge["fill"], charge["stroke"]) == ("#c8e6c9", "#205022")
    assert "on-light" in drawn(draw(xml))["Activity_charge"].attrib["class"]
    bad = outline(drawn(draw(xml.replace("#c8e6c9", "url(//x)")))["Activity_charge"])
    assert "fill" not in bad


@pytest.mark.parametrize("bad", ["NaN", "1e308", "-1e308", "Infinity", "", "wide", "1e9", "٣٣"])
@pytest.mark.parametrize("attribute", ["x", "width", "height"])
def test_b9_coordinates_that_are_not_numbers_do_not_break_the_picture(attribute: str, bad: str) -> None:
    xml = text_of("order_cloud")
    for broken in (
        re.sub(rf'\b{attribute}="[^"]*"', f'{attribute}="{bad}"', xml),
        re.sub(rf'(<dc:Bounds [^>]*)\b{attribute}="[^"]*"', rf'\1{attribute}="{bad}"', xml, count=4),
        re.sub(rf'\b{attribute}="[^"]*"', "", xml),
    ):
        svg = draw(broken)
        assert set(drawn(svg)) == set(drawn(draw(xml)))
        assert not re.search(r"nan|inf(?!o)|e\+", re.sub(r"<(title|desc|style)>.*?</\1>", "", svg))
        root = parsed(svg)
        assert float(root.attrib["width"]) <= 16_000
        assert float(root.attrib["height"]) <= 16_000


def test_b9_what_has_no_coordinates_stands_below_what_has_them() -> None:
    xml = re.sub(
        r'<bpmndi:BPMNShape id="Activity_ask_di".*?</bpmndi:BPMNShape>', "", text_of("order_cloud"), flags=re.S
    )
    groups = drawn(draw(xml))
    ask, charge = outline(groups["Activity_ask"]), outline(groups["Activity_charge"])
    assert float(ask["y"]) > float(charge["y"]) + 80
    end = [float(one) for one in NUMBER.findall(list(groups["Flow_4"].iter(f"{SVG}path"))[1].attrib["d"])][:2]
    x, y = float(ask["x"]), float(ask["y"])
    assert x <= end[0] <= x + 110
    assert y <= end[1] <= y + 80


def without_shape(xml: str, key: str) -> str:
    return re.sub(rf'<bpmndi:BPMNShape id="{key}_di".*?</bpmndi:BPMNShape>', "", xml, flags=re.S)


def test_b9_a_boundary_event_goes_where_its_host_goes() -> None:
    xml = text_of("order_cloud")
    groups = drawn(draw(without_shape(xml, "Activity_ship")))
    ship, late = outline(groups["Activity_ship"]), outline(groups["Event_late"])
    assert float(late["cy"]) == float(ship["y"]) + float(ship["height"])
    groups = drawn(draw(without_shape(xml, "Event_late")))
    ship, late = outline(groups["Activity_ship"]), outline(groups["Event_late"])
    assert float(late["cy"]) == float(ship["y"]) + float(ship["height"])


def test_b9_a_name_keeps_its_line_breaks() -> None:
    note = '<textAnnotation id="n"><text>one\ntwo</text></textAnnotation>'
    svg = draw(bpmn_file(f'<task id="t" name="Scan&#10;it"/>{note}'))
    lines = [span.text for span in parsed(svg).iter(f"{SVG}tspan")]
    assert lines == ["Scan", "it", "one", "two"]
    assert title(drawn(svg)["t"]) == "Task: Scan it"


def test_b9_a_file_that_deploy_refuses_is_drawn() -> None:
    xml = bpmn_file(
        '<startEvent id="s"/><robot id="r"/><task id="t"/><task id="t"/><userTask/>'
        '<sequenceFlow id="f" sourceRef="s" targetRef="nowhere"/><sequenceFlow sourceRef="s" targetRef="t"/>'
        '<boundaryEvent id="b" attachedToRef="missing"/><boundaryEvent id="c" attachedToRef="s"/>'
    )
    assert {"s", "t", "s->t", "b", "c"} <= set(drawn(draw(xml)))


@pytest.mark.parametrize("xml", ["", "not XML", "<!DOCTYPE x><x/>", "<a><b></a>"])
def test_b9_a_text_that_is_not_xml_is_refused(xml: str) -> None:
    with pytest.raises(InvalidDefinition):
        draw(xml)


def test_b9_a_file_without_anything_to_draw_gives_an_empty_picture() -> None:
    assert drawn(draw("<x/>")) == {}
    assert drawn(draw(bpmn_file(""), "p")) == {}


MARKS = Marks(
    tokens={"Activity_pack": 3, "gone": 1},
    waits=["Activity_pack"],
    incidents={"Activity_charge": "Bank: <500> \x00\ud800"},
    visited={"StartEvent_1": 1, "Activity_charge": 3},
    taken={"Flow_1": 1, "Flow_2": 3},
)


def test_b9_tokens_waits_incidents_and_history_are_marked() -> None:
    svg = draw(text_of("order_cloud"), "order_cloud", MARKS)
    groups = drawn(svg)
    assert title(groups["Activity_pack"]) == "User task: Pack (3 tokens, waits)"
    assert title(groups["Activity_charge"]).endswith("(entered 3 times, incident: Bank: <500> \ufffd\ufffd)")
    assert title(groups["Flow_2"]) == "Sequence flow Flow_2 (taken 3 times)"
    assert "has-token" in groups["Activity_pack"].attrib["class"]
    assert {"visited", "has-incident"} <= set(groups["Activity_charge"].attrib["class"].split())
    assert "taken" in groups["Flow_1"].attrib["class"]
    assert "taken" not in groups["Flow_3"].attrib["class"]
    assert "×3" in words(svg)
    description = parsed(svg)[1].text or ""
    assert "Pack (3 tokens, waits)" in description
    assert "incident: Bank" in description


def test_b9_the_legend_explains_the_marks_that_are_there() -> None:
    def legend(marks: Marks) -> str:
        found = [group for group in parsed(draw(text_of("order_cloud"), None, marks)).iter(f"{SVG}g")]
        return " ".join(" ".join(one.itertext()) for one in found if one.attrib.get("class") == "legend")

    assert all(word in legend(MARKS) for word in ("token", "wait", "incident", "entered", "taken"))
    assert "incident" not in legend(Marks(tokens={"Activity_pack": 1}))
    assert legend(Marks()) == ""


def test_b9_elements_without_an_id_are_marked_by_the_names_that_the_reader_gives_them() -> None:
    start = '<startEvent><signalEventDefinition signalRef="x"/></startEvent>'
    xml = bpmn_file(
        '<startEvent id="s"/><task id="t"/>'
        + '<sequenceFlow sourceRef="s" targetRef="t"/>' * 2
        + f'<subProcess triggeredByEvent="true">{start}</subProcess>' * 2,
        around='<signal id="x" name="x"/>',
    )
    spec = read_bpmn(xml).processes[0]
    assert {node.id for node in spec.nodes} | {flow.id for flow in spec.flows} == set(drawn(draw(xml)))


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    ("front", "back", "least"),
    [
        ("ink", "paper", 7),
        ("ink", "surface", 7),
        ("ink", "green-wash", 7),
        ("line", "paper", 3),
        ("paper", "blue", 4.5),
        ("paper", "amber", 4.5),
        ("paper", "red", 4.5),
        ("green", "paper", 4.5),
    ],
)
def test_b9_colors_can_be_read_in_light_and_dark(front: str, back: str, least: float, side: int) -> None:
    dark, light = sorted([luminance(COLORS[front][side]), luminance(COLORS[back][side])])
    assert (light + 0.05) / (dark + 0.05) >= least


def test_b9_the_files_of_other_engines_are_drawn() -> None:
    for path in sorted(path for path in CONFORMANCE.glob("*/*") if path.suffix in (".xml", ".bpmn")):
        assert drawn(draw(path.read_text("utf-8"))), path.name


def test_b9_a_large_file_is_scaled_down() -> None:
    nodes = "".join(f'<task id="t{number}"/>' for number in range(400))
    flows = "".join(f'<sequenceFlow id="f{n}" sourceRef="t{n}" targetRef="t{n + 1}"/>' for n in range(399))
    svg = draw(definitions(f'<process id="p">{nodes}{flows}</process>'))
    assert len(drawn(svg)) == 799
    assert float(parsed(svg).attrib["width"]) == 16_000


def test_b9_a_file_with_few_coordinates_is_laid_out_as_a_whole() -> None:
    xml = text_of("order_cloud")
    for key in ("Activity_charge", "Gateway_paid", "Activity_ship", "Event_done", "Activity_ask"):
        xml = without_shape(xml, key)
    groups = drawn(draw(xml))
    start, charge = outline(groups["StartEvent_1"]), outline(groups["Activity_charge"])
    assert float(start["cy"]) == float(charge["y"]) + 40  # in line, not above what has no coordinates


def test_b9_a_text_without_a_place_stands_beside_the_line_that_leaves_its_event() -> None:
    xml = re.sub(
        r'<bpmndi:BPMNLabel>\s*<dc:Bounds x="489".*?</bpmndi:BPMNLabel>', "", text_of("order_cloud"), flags=re.S
    )
    root = parsed(draw(xml))
    late = next(span for span in root.iter(f"{SVG}tspan") if span.text == "After 3 days")
    center = float(outline(drawn(draw(xml))["Event_late"])["cx"])
    assert float(late.attrib["x"]) > center + 20  # the middle of the text
