"""How runs, names and tasks are written in keys and subjects of NATS."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hark.engine.nats.keys import BadKey, parse_signal_key, signal_key, stream_subject

_TEXT = st.text(min_size=1, max_size=40) | st.text(alphabet="a.=*> /é🙂\n", min_size=1, max_size=12)
_VALID = re.compile(r"[-/_=A-Za-z0-9]+(\.[-/_=A-Za-z0-9]+)+")


@given(run=_TEXT, name=_TEXT)
def test_j10_fault_51_a_key_can_be_read_back_and_has_only_characters_that_nats_allows(run: str, name: str) -> None:
    key = signal_key(run, name)
    assert _VALID.fullmatch(key), "also no empty part: no dot at the beginning, at the end, or beside another"
    assert parse_signal_key(key) == (run, name)


@given(one=st.tuples(_TEXT, _TEXT), other=st.tuples(_TEXT, _TEXT))
def test_j10_fault_51_different_runs_and_names_have_different_keys_and_subjects(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    assert (signal_key(*one) == signal_key(*other)) == (one == other)
    assert (stream_subject(*one) == stream_subject(*other)) == (one == other)


@given(run=_TEXT, task=_TEXT)
def test_j10_a_run_is_one_part_of_a_subject(run: str, task: str) -> None:
    stream, part, *rest = stream_subject(run, task).split(".")
    assert stream == "stream"
    assert part
    assert all(rest)
    assert signal_key(run, task).split(".")[0] == part


@pytest.mark.parametrize(
    ("run", "name", "key"),
    [
        ("run", "approval", "run.approval"),
        ("order.42", "review.done", "order=2E42.review.done"),
        ("order:42", "a/b", "order=3A42.a/b"),
        ("r", "..", "r.=2E=2E"),
        ("r", ".a.", "r.=2Ea=2E"),
        ("r", "a b", "r.a=20b"),
        ("r", "ü", "r.=C3=BC"),
        ("r", "1=1", "r.1=3D1"),
    ],
)
def test_j10_the_keys_that_the_guide_documents(run: str, name: str, key: str) -> None:
    assert signal_key(run, name) == key


def test_j10_a_client_may_write_more_bytes_as_hexadecimal_than_it_must() -> None:
    assert parse_signal_key("order=2e42.review=2Edone") == ("order.42", "review.done")


@pytest.mark.parametrize("key", ["run", ".run", "run.", "r.=", "r.=2", "r.=GG", "r.=FF", "r.a b", "r.🙂", "=C3.x"])
def test_j10_a_key_that_cannot_be_read_is_an_error_that_says_why(key: str) -> None:
    with pytest.raises(BadKey, match=r"^(it|an|its) .+"):
        parse_signal_key(key)
