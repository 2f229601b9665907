"""Splitting what a command writes to stderr."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hark.engine.commands.lines import LineSplitter


def lines_of(*chunks: bytes, limit: int = 100) -> list[str]:
    splitter = LineSplitter(limit)
    found = [line for chunk in chunks for line in splitter.feed(chunk)]
    return found + splitter.feed(b"", final=True)


def test_lines_are_given_when_they_are_complete() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\ntw") == ["one"]
    assert splitter.feed(b"o\r\n\nthree") == ["two", ""]
    assert splitter.feed(b"", final=True) == ["three"]
    assert splitter.feed(b"", final=True) == []


def test_bytes_that_are_not_utf8_become_a_replacement_character() -> None:
    assert lines_of(b"a\xffb\n", "caf\u00e9".encode()[:-1]) == ["a\ufffdb", "caf\ufffd"]


def test_a_huge_line_is_given_in_parts_before_it_ends() -> None:
    splitter = LineSplitter(10)
    assert splitter.feed(b"x" * 25) == ["x" * 10, "x" * 10]
    assert splitter.feed(b"\n") == ["x" * 5]


@given(st.text(st.characters(blacklist_characters="\r", blacklist_categories=["Cs"])), st.lists(st.integers(0, 300)))
def test_the_cuts_between_reads_change_nothing(text: str, cuts: list[int]) -> None:
    data = text.encode()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    chunks = [data[begin:end] for begin, end in pairwise(places)]
    assert lines_of(*chunks, limit=1000) == lines_of(data, limit=1000)
    assert "\n".join(lines_of(*chunks, limit=1000)) == text.removesuffix("\n")
