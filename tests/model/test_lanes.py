"""The names of lanes."""

import pytest

from hark.model.lanes import agent_lane, handler_of, lane_name_problem, task_lane


@pytest.mark.parametrize(
    "name", ["charge-card", "io.camunda:http-json:1", "Ship, then bill", "a@b", "50%", "%2C", "${x}"]
)
def test_a_handler_may_have_any_name(name: str) -> None:
    lane = task_lane(name)
    assert handler_of(lane) == name
    assert lane_name_problem(name, "handler") is None
    assert not {"@", ","} & set(lane)


def test_a_handler_never_has_the_lane_of_an_agent() -> None:
    assert task_lane("agent:claude") != agent_lane("claude")
    assert lane_name_problem("shell", "handler") is not None
    assert lane_name_problem("a:b", "gate") is not None
