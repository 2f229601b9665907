"""Tokens: an expression cut into numbers, texts, names and signs.

One lexer for all syntaxes; what differs between them is a `Lexicon`. The text that surrounds an expression in a
template is not read here: reading starts after the opening brackets and ends before the closing ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from hark.programs.expressions.error import ExpressionError

MAX_TOKENS = 10_000
_LARGEST_NUMBER = 40  # characters; a number of JSON that needs more has lost its meaning as a float anyway

Kind = Literal["number", "text", "name", "attribute", "sign", "end"]


class Lexeme(NamedTuple):
    """A token; `value` is the number or the text of it, `at` its index in the whole text."""

    kind: Kind
    value: Any
    at: int


@dataclass(frozen=True)
class Lexicon:
    """The tokens of a syntax."""

    signs: re.Pattern[str]
    attribute: re.Pattern[str]  # what may follow a dot
    escapes: dict[str, str]  # the character after a backslash in a text, and what both stand for
    unicode_escapes: bool
    close: str | None  # what ends the expression outside brackets and texts: `}}`; None: the end of the text


_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NAME = re.compile(r"[^\W\d]\w*")
_PLAIN = re.compile(r"[^'\"\\]+")
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_OPENING, _CLOSING = "([{", ")]}"


def read_tokens(text: str, start: int, lexicon: Lexicon) -> tuple[list[Lexeme], int]:
    """The tokens from `start` on, the last of which is of kind `end`, and the index after what closed them."""
    tokens: list[Lexeme] = []
    open_brackets: list[tuple[str, int]] = []
    at = start
    while True:
        at = _end(_SPACE, text, at)
        if not open_brackets and lexicon.close is not None and text.startswith(lexicon.close, at):
            tokens.append(Lexeme("end", None, at))
            return tokens, at + len(lexicon.close)
        if at == len(text):
            if open_brackets:
                bracket, place = open_brackets[-1]
                raise ExpressionError(f"{bracket!r} is not closed", text, place)
            if lexicon.close is not None:
                raise ExpressionError(f"{lexicon.close!r} is missing", text, start)
            tokens.append(Lexeme("end", None, at))
            return tokens, at
        if len(tokens) == MAX_TOKENS:
            raise ExpressionError(f"The expression has over {MAX_TOKENS:,} parts", text, at)
        token, at = _next(text, at, lexicon, after_dot=bool(tokens) and tokens[-1][:2] == ("sign", "."))
        if token.kind == "sign" and token.value in _OPENING:
            open_brackets.append((token.value, token.at))
        elif token.kind == "sign" and token.value in _CLOSING:
            _close_bracket(text, token, open_brackets)
        tokens.append(token)


def _close_bracket(text: str, token: Lexeme, open_brackets: list[tuple[str, int]]) -> None:
    if not open_brackets:
        raise ExpressionError(f"{token.value!r} closes nothing", text, token.at)
    bracket, _ = open_brackets.pop()
    expected = _CLOSING[_OPENING.index(bracket)]
    if token.value != expected:
        raise ExpressionError(f"{token.value!r} where {expected!r} is expected", text, token.at)


def _next(text: str, at: int, lexicon: Lexicon, *, after_dot: bool) -> tuple[Lexeme, int]:
    if after_dot and (found := lexicon.attribute.match(text, at)):
        return Lexeme("attribute", found[0], at), found.end()
    if found := _NAME.match(text, at):
        return Lexeme("name", found[0], at), found.end()
    if found := _NUMBER.match(text, at):
        return Lexeme("number", _number(text, at, found), at), found.end()
    if text[at] in "'\"":
        value, end = _read_text(text, at, lexicon)
        return Lexeme("text", value, at), end
    if found := lexicon.signs.match(text, at):
        return Lexeme("sign", found[0], at), found.end()
    raise ExpressionError(f"{text[at]!r} is not part of the language", text, at)


def _number(text: str, at: int, found: re.Match[str]) -> int | float:
    """An int or a float, by the rule of JSON: a fraction or an exponent makes a float."""
    if found.end() - at > _LARGEST_NUMBER:
        raise ExpressionError(f"The number has over {_LARGEST_NUMBER} characters", text, at)
    if following := re.compile(r"\w+").match(text, found.end()):
        raise ExpressionError(f"{found[0] + following[0]!r} is not a number", text, at)
    if found[1] is None and found[2] is None:
        return int(found[0])
    value = float(found[0])
    if value in (float("inf"), float("-inf")):
        raise ExpressionError(f"The number {found[0]} is too large", text, at)
    return value


def _read_text(text: str, at: int, lexicon: Lexicon) -> tuple[str, int]:
    quote, place, pieces = text[at], at + 1, list[str]()
    while place < len(text):
        if found := _PLAIN.match(text, place):
            pieces.append(found[0])
            place = found.end()
        elif text[place] == quote:
            value = "".join(pieces)
            check_text(text, at, value)
            return value, place + 1
        elif text[place] == "\\":
            piece, place = _read_escape(text, place, lexicon)
            pieces.append(piece)
        else:
            pieces.append(text[place])
            place += 1
    raise ExpressionError(f"The text is not closed: {quote} is missing", text, at)


def _read_escape(text: str, at: int, lexicon: Lexicon) -> tuple[str, int]:
    following = text[at + 1 : at + 2]
    if following in lexicon.escapes:
        return lexicon.escapes[following], at + 2
    if following == "u" and lexicon.unicode_escapes:
        if not (first := _HEX.match(text, at + 2)):
            raise ExpressionError("\\u needs four hexadecimal digits", text, at)
        code = int(first[0], 16)
        if 0xD800 <= code < 0xDC00 and text.startswith("\\u", first.end()):
            second = _HEX.match(text, first.end() + 2)
            if second and 0xDC00 <= (low := int(second[0], 16)) < 0xE000:
                return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)), second.end()
        return chr(code), first.end()
    known = " ".join(f"\\{character}" for character in lexicon.escapes)
    raise ExpressionError(f"\\{following} is not an escape in a text; use one of {known}", text, at)


def check_text(text: str, at: int, value: str) -> None:
    """Refuse what no JSON of Hark may contain."""
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise ExpressionError("The text contains NUL or half of a surrogate pair", text, at)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()
