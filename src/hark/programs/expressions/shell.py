"""Put values into a shell command, each as a variable, quoted for the place at which it stands.

The values are assigned to variables before the command, where nothing but single quotes surrounds them; the command
gets `"${hark_value_1}"`. So its text is the same whatever the values are: an input cannot become code, not even where a
shell and `ShellText` read the command differently. Values that are written into the command itself could.

`ShellText` reads the command as a POSIX shell would, as far as it needs to: is the place of a value inside single
quotes, inside double quotes, in a comment, or plain? Where it cannot tell, or the shells differ (in a here-document, in
backticks, in `${…}`), a value is refused with a message that says what to write instead: `x={{ … }}` in a line of its
own, then `"$x"`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class UnsafePlace(Exception):
    """A value cannot be quoted at this place of the command; templates.py adds the position."""


class Place(Enum):
    """The surroundings of the present character."""

    PLAIN = auto()
    SUBSTITUTION = auto()  # plain text in $(…)
    SINGLE = auto()
    DOUBLE = auto()
    ARITHMETIC = auto()  # $((…))
    PARAMETER = auto()  # ${…}
    BACKTICKS = auto()
    COMMENT = auto()
    DELIMITER = auto()  # the word after <<
    HERE_DOCUMENT = auto()


@dataclass
class _Level:
    place: Place
    open: int = 0  # brackets opened within it that have to be closed first
    pending: int = 0  # here-documents of the line it begins in, whose text comes after that line


_NAME = "hark_value_"
_LINES = (Place.PLAIN, Place.COMMENT, Place.DELIMITER, Place.HERE_DOCUMENT)  # where a newline ends a line
_MARK = frozenset("_-.,:+=%@/!")  # besides letters and digits: what means itself in an end mark
_SEPARATORS = frozenset(" \t\n;&|()<>")
_ADVICE = 'Assign it in a line of its own, x={{ … }}, and write "$x" here'
_REFUSED = {
    Place.BACKTICKS: "A value in backticks cannot be quoted",
    Place.PARAMETER: "A value in ${…} cannot be quoted",
    Place.DELIMITER: "The end mark of a here-document cannot be a value",
    Place.HERE_DOCUMENT: "A value in a here-document cannot be quoted",
}


class ShellText:
    """Reads a command from the left and refers to the values as the place that was reached needs it."""

    def __init__(self) -> None:
        self._values: list[str] = []
        self._levels = [_Level(Place.PLAIN)]
        self._before = ""  # signs that may have a meaning together with what follows: \ $ < <<
        self._word: str | None = ""  # the beginning of the plain word; None if it has quotes or values
        self._unsure = False  # the shells differ about what came before, or it needs their whole grammar
        self._is_split = False  # the backslash in `_before` follows the first character of an operator
        # Here-documents that start at the next line: end mark, whether tabs are stripped, whether the text expands.
        self._documents: list[tuple[str, bool, bool]] = []
        self._mark: list[str] = []  # the characters of an end mark so far
        self._mark_quote = ""
        self._is_mark_quoted = False
        self._strips_tabs = False
        self._line: list[str] = []  # the characters of a line of a here-document so far

    def assignments(self) -> str:
        """Assignments of the values to their variables, to come before the command, on its first line."""
        quoted = (value.replace("'", "'\\''") for value in self._values)
        return "".join(f"{_NAME}{number}='{value}'; " for number, value in enumerate(quoted, 1))

    def feed(self, text: str) -> None:
        """Read a part of the command that is not a value, or a value that is used as it is."""
        for character in text:
            if self._unsure:
                return  # every value from here on is refused
            self._read(character)

    def quote(self, value: str, *, is_number: bool) -> str:
        """The variable with the value, quoted as it has to be written here. Raises UnsafePlace."""
        if "\0" in value:
            raise UnsafePlace("A value with a NUL character cannot be part of a command")
        places = [level.place for level in self._levels]
        for place, problem in _REFUSED.items():
            if place in places:
                raise UnsafePlace(f"{problem}. {_ADVICE}")
        if self._unsure:
            raise UnsafePlace(f"The command before this value is too intricate to quote it safely. {_ADVICE}")
        if self._before == "<<":
            raise UnsafePlace(_REFUSED[Place.DELIMITER])
        if self._before:
            if self._before in ("\\", "$"):
                raise UnsafePlace(f"A value cannot follow {self._before!r}, which would change its quotes. {_ADVICE}")
            self._before = ""
        here = places[-1]
        if Place.ARITHMETIC in places:
            if here is not Place.ARITHMETIC or not is_number:
                raise UnsafePlace(f"Only a number can be a value in $((…)). {_ADVICE}")
            return value
        self._values.append(value)
        variable = f"${{{_NAME}{len(self._values)}}}"
        match here:
            case Place.COMMENT | Place.DOUBLE:
                return variable
            case Place.SINGLE:
                return f"""'"{variable}"'"""
            case _:
                self._word = None
                return f'"{variable}"'

    def _read(self, character: str) -> None:
        if character == "\\":
            self._is_split = self._before in ("$", "$(", "(", "<")
        elif character == "\n":
            self._read_line_end()
        match self._levels[-1].place:
            case Place.SINGLE:
                if character == "'":
                    self._levels.pop()
            case Place.COMMENT:
                if character == "\n":
                    self._levels.pop()
                    self._read(character)
            case Place.HERE_DOCUMENT:
                self._read_document(character)
            case Place.DELIMITER:
                self._read_mark(character)
            case Place.BACKTICKS:
                if self._before:
                    self._before = ""
                elif character == "\\":
                    self._before = character
                elif character == "`":
                    self._levels.pop()
            case Place.DOUBLE:
                if not self._read_common(character) and character == '"':
                    self._levels.pop()
            case Place.ARITHMETIC:
                if not self._read_common(character):
                    self._read_arithmetic(character)
            case Place.PARAMETER:
                if not self._read_common(character):
                    self._read_parameter(character)
            case Place.PLAIN | Place.SUBSTITUTION:
                self._read_plain(character)

    def _read_line_end(self) -> None:
        """Notice lines whose continuation changes the command: `<`, a backslash and `<` on the next line are `<<`. The
        shells differ about where a here-document ends that has a continued line, or a substitution of several lines,
        and where one begins whose line has quotes or a substitution of several lines."""
        level = self._levels[-1]
        is_continued = self._before == "\\"
        within = any(level.place is Place.HERE_DOCUMENT for level in self._levels[:-1])
        if within or (is_continued and (self._is_split or level.place is Place.HERE_DOCUMENT)):
            self._unsure = True
        elif level.place is Place.SUBSTITUTION:
            self._unsure |= level.pending > 0
        elif level.place not in _LINES:
            self._unsure |= len(self._documents) > 0

    def _read_common(self, character: str) -> bool:
        """Read what means the same in and outside double quotes: backslashes, `$…`, backticks. Return whether it was
        one."""
        before, self._before = self._before, ""
        if before == "\\":
            return True
        if before == "$":
            if character == "$":  # the number of the process: `$$(` begins no substitution
                return True
            if character == "(":
                self._levels.append(_Level(Place.SUBSTITUTION, pending=len(self._documents)))
                self._before, self._word = "$(", ""
                return True
            if character == "{":
                self._levels.append(_Level(Place.PARAMETER))
                return True
            if character == "[":
                self._unsure = True  # an old way to write $((…))
        if character in ("\\", "$"):
            self._before = character
            return True
        if character == "`":
            self._levels.append(_Level(Place.BACKTICKS))
            return True
        return False

    def _read_plain(self, character: str) -> None:
        before = self._before
        if before in ("<", "<<"):
            self._before = ""
            if self._read_redirection(before, character):
                return
            before = ""
        if before == "$(" and character == "(":
            self._before = ""
            level = self._levels[-1]
            level.place, level.open = Place.ARITHMETIC, 2
            return
        if before == "(" and character == "(":
            self._unsure = True  # ((…)) is arithmetic in some shells
        if before in ("$(", "("):
            self._before = before = ""
        if before == "$" and character == "'":
            self._unsure = True  # $'…' has escapes in some shells
        if self._read_common(character):
            # A backslash is part of the word, unless a line ends after it: then both are as if they were not there.
            if self._before not in ("\\", "$(") and not (before == "\\" and character == "\n"):
                self._word = None
            return
        level = self._levels[-1]
        if character == "#" and self._word == "":
            self._levels.append(_Level(Place.COMMENT))
        elif character == "'":
            self._word = None
            self._levels.append(_Level(Place.SINGLE))
        elif character == '"':
            self._word = None
            self._levels.append(_Level(Place.DOUBLE))
        elif character in _SEPARATORS:
            self._end_word()
            self._read_separator(level, character)
        elif self._word is not None and len(self._word) <= len("case"):
            self._word += character

    def _end_word(self) -> None:
        if self._word == "case" and any(level.place is Place.SUBSTITUTION for level in self._levels):
            self._unsure = True  # its patterns end with a bracket that closes nothing
        self._word = ""

    def _read_separator(self, level: _Level, character: str) -> None:
        if character == "<":
            self._before = "<"
        elif character == "(":
            self._before = "("
            level.open += 1
        elif character == ")":
            if level.place is Place.SUBSTITUTION and level.open == 0:
                self._levels.pop()
                self._word = None
                self._unsure |= len(self._documents) > level.pending  # a here-document that has not begun
            else:
                level.open -= 1
        elif character == "\n" and self._documents:
            self._levels.append(_Level(Place.HERE_DOCUMENT))

    def _read_redirection(self, before: str, character: str) -> bool:
        """Read what follows `<` or `<<`; returns whether that was the whole meaning of the character."""
        if before == "<":
            if character == "<":
                self._before = "<<"
                return True
            return False
        if character == "<":  # a here-string: an ordinary word follows
            return True
        self._mark, self._mark_quote, self._strips_tabs = [], "", character == "-"
        self._is_mark_quoted = False
        self._levels.append(_Level(Place.DELIMITER))
        if not self._strips_tabs:
            self._read_mark(character)
        return True

    def _read_mark(self, character: str) -> None:
        if self._mark_quote:
            if self._mark_quote == "\\" or character != self._mark_quote:
                self._mark.append(character)
                self._unsure |= character == "\n" or (self._mark_quote == '"' and character in "\\$`")
            if self._mark_quote in ("\\", character):
                self._mark_quote = ""
        elif character in ("'", '"', "\\"):
            self._mark_quote = character
            self._is_mark_quoted = True
        elif character in " \t" and not self._mark:
            pass
        elif character in _SEPARATORS:
            self._levels.pop()
            self._documents.append(("".join(self._mark), self._strips_tabs, not self._is_mark_quoted))
            self._word = ""
            self._read(character)
        else:
            self._mark.append(character)
            self._unsure |= not (character.isalnum() or character in _MARK)

    def _read_document(self, character: str) -> None:
        mark, strips_tabs, expands = self._documents[0]
        if character != "\n":
            self._line.append(character)
            if expands:
                self._read_common(character)
            return
        self._before = ""
        line, self._line = "".join(self._line), []
        if (line.lstrip("\t") if strips_tabs else line) == mark:
            del self._documents[0]
            if not self._documents:
                self._levels.pop()

    def _read_arithmetic(self, character: str) -> None:
        level = self._levels[-1]
        if character == "(":
            level.open += 1
        elif character == ")":
            level.open -= 1
            if level.open == 0:
                self._levels.pop()
        elif character in ("'", '"'):
            self._unsure = True

    def _read_parameter(self, character: str) -> None:
        in_double = any(level.place is Place.DOUBLE for level in self._levels)
        if character == "}":
            self._levels.pop()
        elif character in ("'", '"') and in_double:
            self._unsure = True  # whether these are quotes depends on the operator
        elif character == "'":
            self._levels.append(_Level(Place.SINGLE))
        elif character == '"':
            self._levels.append(_Level(Place.DOUBLE))
