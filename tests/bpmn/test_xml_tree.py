"""B2 and FAULTS 63: XML files are read safely, in every encoding, with exact lines."""

import gc
import time
import weakref

import pytest

from hark import InvalidDefinition
from hark.programs.bpmn.file import xml_tree
from hark.programs.bpmn.file.xml_tree import MAX_DEPTH, parse_xml

MODEL = "http://www.omg.org/spec/BPMN/20100524/MODEL"


def refused(data: bytes | str) -> tuple[int | None, str]:
    """The line and the message of the one problem."""
    with pytest.raises(InvalidDefinition) as caught:
        parse_xml(data)
    [problem] = caught.value.problems
    assert str(problem) in str(caught.value)
    return problem.line, problem.message


@pytest.mark.parametrize("prefix", ["", "bpmn", "semantic", "b2"])
def test_b2_a_namespace_has_one_prefix_here_whatever_the_file_calls_it(prefix: str) -> None:
    colon = f"{prefix}:" if prefix else ""
    declared = f"xmlns:{prefix}" if prefix else "xmlns"
    root = parse_xml(f'<{colon}definitions {declared}="{MODEL}"><{colon}process id="a"/></{colon}definitions>').root
    assert [element.tag for element in root.walk()] == ["bpmn:definitions", "bpmn:process"]
    assert root.attributes == {}
    assert root.children[0].get("id") == "a"


def test_b2_attributes_have_a_namespace_only_with_a_prefix() -> None:
    root = parse_xml(
        f'<task xmlns="{MODEL}" xmlns:c="http://camunda.org/schema/1.0/bpmn" xmlns:x="urn:acme" id="t" c:topic="pay"'
        ' x:color="red" xml:lang="en"><x:robot/><none xmlns=""/></task>'
    ).root
    assert root.attributes == {"id": "t", "camunda:topic": "pay", "{x}color": "red", "xml:lang": "en"}
    assert [(child.tag, child.name) for child in root.children] == [("{x}robot", "robot"), ("none", "none")]


def test_b2_a_prefix_means_what_the_innermost_declaration_says() -> None:
    root = parse_xml(f'<a:x xmlns:a="urn:1"><a:y xmlns:a="{MODEL}"><a:z/></a:y><a:w/></a:x>').root
    assert [element.tag for element in root.walk()] == ["{a}x", "bpmn:y", "bpmn:z", "{a}w"]


def test_b2_the_text_of_an_element_is_what_is_directly_in_it() -> None:
    root = parse_xml("<a> x &lt; <b>inner</b><![CDATA[<3]]>&#65;<!-- no --></a>").root
    assert root.text == " x < <3A"
    assert root.children[0].text == "inner"


@pytest.mark.parametrize("tag", ["documentation", "text"])
def test_b2_the_text_of_elements_for_people_has_that_of_the_html_in_it(tag: str) -> None:
    html = '<h:div xmlns:h="http://www.w3.org/1999/xhtml">a <h:b>b <h:i>c</h:i></h:b> d<h:br/>e</h:div>'
    [first, second] = parse_xml(f'<x xmlns="{MODEL}"><{tag}>0{html}1</{tag}><task>2<b>3</b></task></x>').root.children
    assert first.text == "0a b c d\ne\n1"
    assert (second.text, second.children[0].text) == ("2", "3")


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_b2_lines_are_exact_beyond_65535(newline: str) -> None:
    root = parse_xml(f"<a>{newline * 70_000}<b{newline}x='1'/>{newline}<c/></a>").root
    assert [child.line for child in root.children] == [70_001, 70_003]


ENCODED = [
    ("utf-8", "utf-8"), ("utf-8-sig", "utf-8"), ("utf-16", "utf-16"), ("utf-16-le", "UTF-16"), ("utf-16-be", "utf-16"),
    ("utf-32", "utf-32"), ("iso-8859-1", "ISO-8859-1"), ("windows-1252", "windows-1252"), ("cp437", "cp437"),
    ("gb18030", "GB18030"), ("utf-8", "utf-16"),
]  # fmt: skip


@pytest.mark.parametrize(("encoding", "declared"), ENCODED)
def test_b2_every_encoding_is_read(encoding: str, declared: str) -> None:
    data = f'<?xml version="1.0" encoding="{declared}"?>\n<a name="größer"/>'.encode(encoding)
    document = parse_xml(data)
    assert document.root.get("name") == "größer"
    assert document.root.line == 2
    assert document.text.startswith("<?xml")


def test_b2_a_text_is_read_whatever_encoding_it_declares() -> None:
    assert parse_xml('\ufeff<?xml version="1.0" encoding="ISO-8859-1"?><a n="ü€"/>').root.get("n") == "ü€"


BAD = {
    "empty": (b"", 1, "well-formed"),
    "garbage": (b"\x00\x01\x02garbage", 1, "well-formed"),
    "not xml": (b"process: order\n", 1, "well-formed"),
    "not closed": (b"<a>\n<b>\n</a>", 3, "mismatched tag"),
    "two roots": (b"<a/>\n<b/>", 2, "junk after document element"),
    "latin 1 that is not declared": (b"<a>\n\xfc</a>", 2, "Save it as UTF-8"),
    "an unknown encoding": (b'<?xml version="1.0" encoding="klingon"?><a/>', 1, "klingon"),
    "a codec that is not an encoding": (b'<?xml version="1.0" encoding="punycode"?><a/>', 1, "punycode"),
    "half a character": ("<a>\n\n\ud800</a>", 3, "U+D800"),
    "a reference to half a character": (b"<a>\n&#xD800;</a>", 2, "invalid character"),
    "a control character": (b"<a>\n\x01</a>", 2, "well-formed"),
    "a prefix that is not declared": (b"<a>\n<x:b/></a>", 2, "'x'"),
    "a prefix of an attribute that is not declared": (b"<a>\n<b x:c='1'/></a>", 2, "'x'"),
    "an entity": (b"<a>\n&who;</a>", 2, "undefined entity"),
    "doctype": (b"<!DOCTYPE a>\n<a/>", 1, "DOCTYPE"),
    "an external entity": (b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', 1, "DOCTYPE"),
    "a bomb": (
        b'<?xml version="1.0"?>\n<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;&b;">]>\n<a>&c;</a>', 2, "DOCTYPE",
    ),
    "200,000 levels": (b"<a>" * 200_000 + b"</a>" * 200_000, 1, f"deeper than {MAX_DEPTH} levels"),
    "200,000 levels that are not closed": (b"<a>\n" * 200_000, MAX_DEPTH + 1, "deeper"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_b2_what_cannot_be_read_is_refused_with_its_line(case: str) -> None:
    data, line, words = BAD[case]
    found, message = refused(data)
    assert found == line
    assert words in message


def test_b2_a_file_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_tree, "MAX_CHARACTERS", 1000)
    assert "may have 1,000" in refused("<a>" + " " * 1000 + "</a>")[1]
    assert "may have 1,000" in refused(b"<a>" + b" " * 5000 + b"</a>")[1]
    monkeypatch.setattr(xml_tree, "MAX_ELEMENTS", 10)
    assert "more than 10 elements" in refused("<a>" + "<b/>" * 10 + "</a>")[1]


def test_b2_namespaces_are_not_multiplied_by_the_elements_that_use_them() -> None:
    """Neither a long address nor many declarations make the tree larger than the file."""
    address = "urn:" + "x" * 1_000_000
    root = parse_xml(f'<p:a xmlns:p="{address}">' + "<p:b/>" * 20_000 + "</p:a>").root
    assert sum(len(element.tag) for element in root.walk()) < 200_000
    many = " ".join(f'xmlns:p{number}="urn:{number}"' for number in range(300))
    assert "more than 200 namespaces" in refused(f"<a {many}/>")[1]


def test_b2_a_tree_is_freed_when_it_is_dropped() -> None:
    """Not only by the collector: a server reads many files."""
    gc.disable()
    try:
        builder = xml_tree._Builder()
        gone = weakref.ref(builder)
        builder.build("<a><b/></a>")
        del builder
        assert gone() is None
    finally:
        gc.enable()


def test_b2_a_large_file_is_read_in_linear_time() -> None:
    """Ten times the elements take about ten times as long, not a hundred times."""

    def seconds(count: int) -> float:
        text = f'<d xmlns="{MODEL}">' + '<task id="t" name="x">\n</task>' * count + "</d>"
        begin = time.process_time()
        parse_xml(text)
        return time.process_time() - begin

    gc.disable()
    try:
        assert min(seconds(30_000) for _ in range(3)) < 50 * min(seconds(3_000) for _ in range(3))
    finally:
        gc.enable()
