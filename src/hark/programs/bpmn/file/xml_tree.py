"""XML as a small tree of our own: tags, attributes, texts and exact lines. Hostile input is refused, quickly.

The parser is expat, without its namespaces: it would copy the address of the namespace into every name, which a file
with a long address turns into gigabytes. Names get a known prefix here, whatever the file calls it: `bpmn:task`,
`camunda:topic`. A DOCTYPE is refused, so there are no entities except the five that XML has.

What the elements mean is not decided here: see bpmn_reading.py.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn
from xml.parsers import expat

from hark.model.errors import InvalidDefinition
from hark.model.problem import Problem

MAX_CHARACTERS = 10_000_000
MAX_ELEMENTS = 500_000  # about a second of work
MAX_DEPTH = 100
MAX_PREFIXES = 200

PREFIXES = {
    "http://www.omg.org/spec/BPMN/20100524/MODEL": "bpmn",
    "http://www.omg.org/spec/BPMN/20100524/DI": "bpmndi",
    "http://www.omg.org/spec/DD/20100524/DC": "dc",
    "http://www.omg.org/spec/DD/20100524/DI": "di",
    "http://www.omg.org/spec/BPMN/non-normative/color/1.0": "color",
    "http://bpmn.io/schema/bpmn/biocolor/1.0": "bioc",
    "http://camunda.org/schema/1.0/bpmn": "camunda",
    "http://camunda.org/bpmn": "camunda",
    "http://www.camunda.com/fox": "camunda",
    "http://operaton.org/schema/1.0/bpmn": "camunda",
    "http://camunda.org/schema/zeebe/1.0": "zeebe",
    "http://camunda.org/schema/modeler/1.0": "modeler",
    "http://flowable.org/bpmn": "flowable",
    "http://activiti.org/bpmn": "activiti",
    "http://www.signavio.com": "signavio",
    "http://www.w3.org/2001/XMLSchema-instance": "xsi",
    "http://www.w3.org/XML/1998/namespace": "xml",
}
"""The prefixes of known namespaces, by the address of the namespace."""

_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_DECLARED = re.compile(rb"""<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z][A-Za-z0-9._-]{0,40})["']""")
_TEXT_CODECS = re.compile(
    r"utf-8|ascii|iso8859-\d+|cp\d+|koi8-\w|gb\w+|big5\w*|shift_jis\w*|euc_\w+|iso2022_\w+|hz|mac-\w+|tis-620|johab"
)  # each reads ASCII as ASCII, so the declaration could be read, and none of them can do more than decode
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"<\0\0\0", "utf-32-le"),
    (b"\0\0\0<", "utf-32-be"),
    (b"<\0", "utf-16-le"),
    (b"\0<", "utf-16-be"),
)

PROSE = frozenset(("bpmn:documentation", "bpmn:text"))
"""Elements with a text for people, which may contain HTML."""

_BLOCKS = frozenset(("br", "div", "h1", "h2", "h3", "h4", "li", "p", "tr"))  # elements of HTML that end a line


class XmlElement:
    """An element of an XML file.

    Attributes:
        tag: Prefix and name, `bpmn:task`. The prefix is that of PREFIXES. Of another namespace, it is the one in the
            file, in braces: `{acme}robot`; without a namespace it is missing.
        attributes: By name; one with a prefix is named like a tag. Declarations of namespaces are not among them.
        line: The line on which it begins, from 1.
        text: The characters directly in it; of documentation and of text annotations, also those of the elements in it,
            which are HTML there and have no text of their own.
        children: The elements directly in it, in order.
    """

    __slots__ = ("attributes", "children", "line", "tag", "text")

    def __init__(self, tag: str, attributes: dict[str, str], line: int) -> None:
        self.tag = tag
        self.attributes = attributes
        self.line = line
        self.text = ""
        self.children: list[XmlElement] = []

    def __repr__(self) -> str:
        return f"<{self.tag} line {self.line}>"

    @property
    def name(self) -> str:
        """The tag without its prefix."""
        return self.tag.rpartition("}")[2].rpartition(":")[2]

    def get(self, attribute: str) -> str | None:
        """The value of an attribute; None if it is missing."""
        return self.attributes.get(attribute)

    def flag(self, attribute: str, *, default: bool = False) -> bool:
        """The value of an attribute that is true or false; the default if it is missing or another text."""
        return _FLAGS.get((self.attributes.get(attribute) or "").strip().lower(), default)

    def all(self, *tags: str) -> list[XmlElement]:
        """The children with one of these tags."""
        return [child for child in self.children if child.tag in tags]

    def first(self, *tags: str) -> XmlElement | None:
        """The first child with one of these tags; None if there is none."""
        return next((child for child in self.children if child.tag in tags), None)

    def walk(self) -> Iterator[XmlElement]:
        """This element and all below it, in the order of the file."""
        todo = [self]
        while todo:
            element = todo.pop()
            yield element
            todo += reversed(element.children)


class XmlDocument(NamedTuple):
    """A file: its text, the tree of its elements, and the prefixes (of PREFIXES) of the namespaces that it declares."""

    text: str
    root: XmlElement
    declared: frozenset[str]


def parse_xml(data: bytes | str) -> XmlDocument:
    """Parse an XML file.

    Args:
        data: The bytes of the file, in the encoding that its first bytes or its declaration say; or its text.

    Raises:
        InvalidDefinition: It is not well-formed XML, has a DOCTYPE, or is too large or deep; `.problems` says where.
    """
    text = _decoded(data) if isinstance(data, bytes | bytearray | memoryview) else data.removeprefix("\ufeff")
    if len(text) > MAX_CHARACTERS:
        _refuse(None, f"The file has {len(text):,} characters; a BPMN file may have {MAX_CHARACTERS:,}.")
    builder = _Builder()
    return XmlDocument(text, builder.build(text), frozenset(builder.declared))


def _decoded(data: bytes | bytearray | memoryview) -> str:
    data = bytes(data)
    if len(data) > 4 * MAX_CHARACTERS:
        _refuse(None, f"The file has {len(data):,} bytes; a BPMN file may have {MAX_CHARACTERS:,} characters.")
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), None) or _declared_encoding(data)
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        _refuse(line, f"The file is not {encoding.upper()} text. Save it as UTF-8, and declare no other encoding.")


def _declared_encoding(data: bytes) -> str:
    """The encoding that the declaration of a file names. It could be read as ASCII, so it cannot be UTF-16."""
    found = _DECLARED.match(data[:300])
    if found is None:
        return "utf-8"
    name = found[1].decode()
    if name.lower().startswith(("utf-16", "utf-32", "ucs-", "iso-10646")):
        return "utf-8"
    try:
        known = codecs.lookup(name).name
    except LookupError:
        known = ""
    if not _TEXT_CODECS.fullmatch(known):
        _refuse(1, f"The encoding {name!r} is not known. Save the file as UTF-8.")
    return known


def _refuse(line: int | None, message: str) -> NoReturn:
    problem = Problem(None, line, message)
    raise InvalidDefinition(f"The BPMN file cannot be read: {problem}", problems=[problem])


def _is_declaration(attribute: str) -> bool:
    return attribute == "xmlns" or attribute.startswith("xmlns:")


class _Builder:
    def __init__(self) -> None:
        self._document = XmlElement("", {}, 0)
        self._open = [self._document]
        self._texts: list[list[str]] = [[]]
        self._tags: list[dict[str, str]] = [{}]  # full names by names in the file, as far as they are known
        self._prefixes: list[dict[str, str]] = [{"xml": "xml:"}]  # what names begin with, by prefix in the file
        self._count = 0
        self.declared: set[str] = set()
        self._prose = 0  # how many elements are open as soon as one for people is, whose elements are HTML

    def build(self, text: str) -> XmlElement:
        parser = self._parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        try:
            parser.Parse(text, True)
        except expat.ExpatError as error:
            _refuse(error.lineno, f"It is not well-formed XML: {expat.ErrorString(error.code)}. Correct the file.")
        except UnicodeEncodeError as error:
            line = text.count("\n", 0, error.start) + 1
            _refuse(line, f"It contains half a character, U+{ord(text[error.start]):04X}. Remove it.")
        finally:
            parser.StartElementHandler = parser.EndElementHandler = None  # the parser and this object refer to each
            parser.CharacterDataHandler = parser.StartDoctypeDeclHandler = (
                None  # other: freed now, not by the collector
            )
        return self._document.children[0]

    def _doctype(self, *_: object) -> None:
        line = self._parser.CurrentLineNumber
        _refuse(line, "It has a DOCTYPE, which BPMN files do not need and Hark does not read. Remove it.")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        line = self._parser.CurrentLineNumber
        self._count += 1
        if len(self._open) > MAX_DEPTH:
            _refuse(line, f"It nests deeper than {MAX_DEPTH} levels. Flatten it.")
        if self._count > MAX_ELEMENTS:
            _refuse(line, f"It has more than {MAX_ELEMENTS:,} elements. Split it.")
        plain = True
        for key in attributes:
            if ":" in key or key == "xmlns":
                plain = False
                break
        if plain:
            self._tags.append(self._tags[-1])
            self._prefixes.append(self._prefixes[-1])
        else:
            attributes = self._without_declarations(attributes)
        tag = self._tags[-1].get(name) or self._full_name(name, is_attribute=False)
        element = XmlElement(tag, attributes, line)
        self._open[-1].children.append(element)
        self._open.append(element)
        self._texts.append([])
        if tag in PROSE and not self._prose:
            self._prose = len(self._open)

    def _without_declarations(self, attributes: dict[str, str]) -> dict[str, str]:
        """Keep the namespaces that an element declares. Returns its other attributes, with full names."""
        declared = {key[6:]: value.strip() for key, value in attributes.items() if _is_declaration(key)}
        if declared:
            prefixes = dict(self._prefixes[-1])
            for prefix, address in declared.items():
                known = PREFIXES.get(address)
                if known is not None:
                    self.declared.add(known)
                prefixes[prefix] = f"{known}:" if known is not None else f"{{{prefix}}}" if address else ""
            if len(prefixes) > MAX_PREFIXES:
                line = self._parser.CurrentLineNumber
                _refuse(line, f"It declares more than {MAX_PREFIXES} namespaces. Remove those that it does not use.")
        self._prefixes.append(prefixes if declared else self._prefixes[-1])
        self._tags.append({} if declared else self._tags[-1])
        return {
            (self._full_name(key, is_attribute=True) if ":" in key else key): value
            for key, value in attributes.items()
            if not _is_declaration(key)
        }

    def _full_name(self, name: str, *, is_attribute: bool) -> str:
        """The name with its known prefix. A name without a prefix has the default namespace if it is a tag."""
        prefix, colon, local = name.rpartition(":")
        found = self._prefixes[-1].get(prefix)
        if found is None and colon:
            line = self._parser.CurrentLineNumber
            _refuse(line, f'{name!r} has the prefix {prefix!r}, which is not declared. Declare it: xmlns:{prefix}="…".')
        full = f"{found or ''}{local}"
        if not is_attribute:
            self._tags[-1][name] = full
        return full

    def _end(self, _: str) -> None:
        element = self._open.pop()
        self._tags.pop()
        self._prefixes.pop()
        texts = self._texts.pop()
        if self._prose:
            if len(self._open) >= self._prose:
                self._texts[-1] += [*texts, "\n"] if element.name in _BLOCKS else texts
                return
            self._prose = 0
        if texts:
            element.text = "".join(texts)

    def _characters(self, text: str) -> None:
        self._texts[-1].append(text)
