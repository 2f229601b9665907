"""The tokens of FEEL.

A name has no spaces, except that of a function (`string length`), which is one only before `(`, and a property of times
and ranges (`time offset`). Any other name can be written between backticks.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from hark.programs.expressions.error import ExpressionError
from hark.programs.expressions.feel.functions import FEEL_FUNCTIONS
from hark.programs.expressions.tokens import MAX_TOKENS, Lexeme, check_text

_LARGEST_NUMBER = 60  # characters
_LARGEST = 10**300  # what a float can still carry
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\", "/": "/"}
_PICTURES = "\U00010000-\U000effff"  # FEEL allows them in names
_WORD = rf"(?:[^\W\d]|[{_PICTURES}])[\w?{_PICTURES}]*|\?"


def _spaced(names: list[str], after: str) -> str:
    """A pattern of these names, the longest first, with any space in them."""
    return "|".join(r"\s+".join(name.split()) + after for name in sorted(names, key=len, reverse=True))


_FUNCTION = _spaced([name for name in FEEL_FUNCTIONS if " " in name], r"(?=\s*\()")
_PROPERTY = _spaced(["time offset", "start included", "end included"], r"\b")

_SPACE = re.compile(r"(?:[\s\u180e\u200b\ufeff]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NAME = re.compile(f"{_FUNCTION}|{_WORD}")
_AFTER_DOT = re.compile(f"{_PROPERTY}|{_WORD}")
_SIGN = re.compile(r"\.\.|\*\*|<=|>=|!=|->|[-+*/=<>.,:@()\[\]{}]")
_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PLAIN = re.compile(r'[^"\\]+')
_HEX = {"u": re.compile(r"[0-9a-fA-F]{4}"), "U": re.compile(r"[0-9a-fA-F]{6}")}


def read_feel_tokens(text: str, start: int) -> list[Lexeme]:
    """The tokens from `start` on, the last of which is of kind `end`. A name in backticks is of kind `attribute`."""
    tokens: list[Lexeme] = []
    at = start
    while True:
        if (found := _SPACE.match(text, at)) is not None:
            at = found.end()
        if at == len(text):
            tokens.append(Lexeme("end", None, at))
            return tokens
        if len(tokens) == MAX_TOKENS:
            raise ExpressionError(f"The expression has over {MAX_TOKENS:,} parts", text, at)
        token, at = _next(text, at, after_dot=bool(tokens) and tokens[-1][:2] == ("sign", "."))
        tokens.append(token)


def _next(text: str, at: int, *, after_dot: bool) -> tuple[Lexeme, int]:
    if found := (_AFTER_DOT if after_dot else _NAME).match(text, at):
        return Lexeme("attribute" if after_dot else "name", " ".join(found[0].split()), at), found.end()
    if text[at] == '"':
        value, end = _read_text(text, at)
        return Lexeme("text", value, at), end
    if text[at] == "`":
        end = text.find("`", at + 1)
        if end < 0:
            raise ExpressionError("The name is not closed: ` is missing", text, at)
        return Lexeme("attribute", text[at + 1 : end], at), end + 1
    if not text.startswith("..", at) and (found := _NUMBER.match(text, at)):
        return Lexeme("number", _number(text, at, found), at), found.end()
    if found := _SIGN.match(text, at):
        return Lexeme("sign", found[0], at), found.end()
    advice = '; a text is written "…"' if text[at] == "'" else ""
    raise ExpressionError(f"{text[at]!r} is not part of FEEL{advice}", text, at)


def _number(text: str, at: int, found: re.Match[str]) -> int | Decimal:
    if found.end() - at > _LARGEST_NUMBER:
        raise ExpressionError(f"The number has over {_LARGEST_NUMBER} characters", text, at)
    if following := re.compile(r"\w+").match(text, found.end()):
        raise ExpressionError(f"{found[0] + following[0]!r} is not a number", text, at)
    digits = found[0]
    number: int | Decimal = int(digits) if digits.isdigit() else Decimal(digits)
    if number > _LARGEST:
        raise ExpressionError(f"The number {digits} is too large", text, at)
    return number


def _read_text(text: str, at: int) -> tuple[str, int]:
    place, pieces = at + 1, list[str]()
    while place < len(text):
        if found := _PLAIN.match(text, place):
            pieces.append(found[0])
            place = found.end()
        elif text[place] == '"':
            # Two escapes may be the two halves of one character.
            value = "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            check_text(text, at, value)
            return value, place + 1
        else:
            piece, place = _read_escape(text, place)
            pieces.append(piece)
    raise ExpressionError('The text is not closed: " is missing', text, at)


def _read_escape(text: str, at: int) -> tuple[str, int]:
    following = text[at + 1 : at + 2]
    if following in _ESCAPES:
        return _ESCAPES[following], at + 2
    if following in _HEX and (found := _HEX[following].match(text, at + 2)) and int(found[0], 16) <= 0x10FFFF:
        return chr(int(found[0], 16)), found.end()
    return "\\" + following, at + 1 + len(following)
