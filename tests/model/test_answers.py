"""Answers: what the kernel writes into the inbox of the asker is what every interpreter reads."""

from typing import get_args

import pytest

from hark.model.answers import dump_answer, load_answer
from hark.model.errors import AwakeableRejected, AwakeableTimedOut
from hark.model.values import SettledStatus


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("RESOLVED", "null", None, None), '{"status":"RESOLVED","payload":null}'),
        (("RESOLVED", '{"a":1}', None, "ann"), '{"status":"RESOLVED","payload":{"a":1},"by":"ann"}'),
        (("REJECTED", None, "too late", "ann"), '{"status":"REJECTED","error":"too late","by":"ann"}'),
        (("TIMEOUT", None, None, None), '{"status":"TIMEOUT"}'),
    ],
)
def test_an_answer_is_stored_with_what_it_has(given: tuple[SettledStatus, str, str, str], text: str) -> None:
    assert dump_answer(*given) == text
    answer = load_answer(text)
    assert (answer.status, answer.text, answer.error, answer.by) == (given[0], given[1] or "null", given[2], given[3])


@pytest.mark.parametrize("status", get_args(SettledStatus))
def test_every_answer_but_a_resolved_one_is_an_error_of_the_asker(status: SettledStatus) -> None:
    failure = load_answer(dump_answer(status, None, None, None)).failure("prom_1", "Release it?")
    expected = {"RESOLVED": type(None), "TIMEOUT": AwakeableTimedOut}
    assert type(failure) is expected.get(status, AwakeableRejected)
