"""The nearest known word, for messages about a misspelled one."""

from itertools import count

from hark.model.nearest import did_you_mean, nearest_word


def test_the_word_that_is_most_like_it_is_found() -> None:
    assert nearest_word("biuld", ["test", "build", "built"]) == "build"
    assert nearest_word("x", ["test", "build"]) is None
    assert did_you_mean("biuld", ["build"]) == " Did you mean 'build'?"
    assert did_you_mean("x", []) == ""


def test_of_very_many_words_only_the_first_are_compared() -> None:
    assert nearest_word("biuld", (f"other-{number}" for number in count())) is None
    assert nearest_word("b" * 1_000_000, ["b" * 999_999]) is None
