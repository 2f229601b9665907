"""Path coverage as values: what is taken, what is missed, and the sums over several apps."""

from hark.programs.bpmn.bpmn_spec import BpmnSpec, FlowSpec, NodeSpec
from hark.views.bpmn_coverage import PathCoverage, added, covered

NODES = (
    NodeSpec("start", "start", name="Order\nreceived"), NodeSpec("xor", "exclusive"),
    NodeSpec("ship", "task", name="Ship"), NodeSpec("end", "end"),
)  # fmt: skip
FLOWS = (
    FlowSpec("f1", 0, 1), FlowSpec("f2", 1, 2, name="in stock"), FlowSpec("f3", 1, 3), FlowSpec("f4", 2, 3),
)  # fmt: skip
ORDER = BpmnSpec("order", NODES, FLOWS)


def test_d6_coverage_lists_what_was_taken_and_what_was_missed_in_the_order_of_the_file() -> None:
    found = covered(ORDER, 2, {"f3": 1, "f1": 4})
    assert (found.taken, found.missed, found.ratio) == (["f1", "f3"], ["f2", "f4"], 0.5)
    assert [flow.count for flow in found.flows] == [4, 0, 1, 0]


def test_d6_the_text_of_coverage_names_the_ends_of_each_missed_flow() -> None:
    assert str(covered(ORDER, 2, {"f3": 1, "f1": 4})) == (
        "order version 2: 2 of 4 sequence flows taken (50 %)\n"
        "  missed f2: xor → Ship (in stock)\n"
        "  missed f4: Ship → end"
    )
    assert str(covered(ORDER, 1, {"f1": 1, "f2": 1, "f3": 1, "f4": 1})).endswith("(100 %)")
    assert covered(ORDER, 1, {}).flows[0].text == "Order received → xor"


def test_d6_a_process_without_flows_is_covered() -> None:
    assert covered(BpmnSpec("small", NODES[:1]), 1, {}).ratio == 1.0


def test_d6_coverages_of_one_process_add_up_and_those_of_another_text_stay_apart() -> None:
    other = BpmnSpec("order", NODES, FLOWS[:2])
    sums = added([covered(ORDER, 1, {"f1": 1}), covered(other, 1, {}), covered(ORDER, 1, {"f1": 1, "f2": 1})])
    assert [(one.process, len(one.flows), one.taken) for one in sums] == [("order", 4, ["f1", "f2"]), ("order", 2, [])]
    assert sums[0].flows[0].count == 2
    assert added([]) == list[PathCoverage]()
