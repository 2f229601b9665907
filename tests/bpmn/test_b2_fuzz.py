"""B2, B9, FAULTS 63: whatever a file has become, it has checked processes and a picture, or is refused, soon.

HARK_FUZZ=100 tries a hundred times as many files.
"""

import os
import xml.etree.ElementTree as ET
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from hark import InvalidDefinition
from hark.programs.bpmn.bpmn_spec import BpmnSource, decode_bpmn, encode_bpmn
from hark.programs.bpmn.drawing.bpmn_drawing import draw
from hark.programs.bpmn.file import read_bpmn
from tests.bpmn.small_files import bpmn_file, chain, definitions, ext
from tests.bpmn.test_b2_activities import CALLS, HANDLERS, LOOPS, SCRIPTS, USERS
from tests.bpmn.test_b2_bad_files import IN_A_CHAIN, IN_A_PROCESS
from tests.bpmn.test_b2_events import AROUND, BOUNDARIES, CAUGHT, THROWN
from tests.bpmn.test_b2_extensions import REFUSED
from tests.bpmn.test_b9_diagram import drawn

ROUNDS = int(os.environ.get("HARK_FUZZ", "1"))
NASTY = (
    "", " ", "${", "=", "=1 +", "#{x}", "²", "9" * 5000, "R/PT1S", "R99999999999999999999/PT1S", "P", "PT0S", "x" * 300,
    "a:b", ":", "tns:", "PT" + "9" * 400 + "S", "2030-99-99", "* * * * *", "R/2030-01-01/PT0S", "[", "[1, 2]", "true",
    '{"components": [{"type": "group", "components": [[]]}]}', '{"components": {}}', "0", "-1", "NaN", "${a.b(1)}",
    "a#b", "\u2028", "=" + "(" * 500, "=[" * 200, "${" + "!" * 500 + "x}", "1e999", "processInstance", "all",
    "s", "e", "n", "p", "99999", "1e308",
)  # fmt: skip


NESTS = "{http://www.omg.org/spec/BPMN/20100524/MODEL}subProcess"


def seeds() -> list[str]:
    """Files with everything that the other tests read."""
    loops = [
        f'<task id="n"><multiInstanceLoopCharacteristics {a}>{c}</multiInstanceLoopCharacteristics></task>'
        for c, a in LOOPS
    ]
    catches = [f'<intermediateCatchEvent id="n">{definition}</intermediateCatchEvent>' for definition in CAUGHT]
    throws = [f'<intermediateThrowEvent id="n">{definition}</intermediateThrowEvent>' for definition in THROWN]
    bad = [content for content, *_ in IN_A_CHAIN.values()]
    single = [*HANDLERS, *CALLS, *SCRIPTS, *USERS, *REFUSED, *loops, *catches, *throws, *bad]
    files = [bpmn_file(chain(element), around=AROUND) for element in single]
    for definition in BOUNDARIES:
        inside = f'<boundaryEvent id="b" attachedToRef="t">{definition}</boundaryEvent>'
        files.append(bpmn_file(chain('<userTask id="t"/>') + inside, around=AROUND))
    files += [bpmn_file(content, around=AROUND) for content, *_ in IN_A_PROCESS.values()]
    form = ext('<zeebe:userTaskForm id="f">{"components": [{"type": "textfield", "key": "a.b"}]}</zeebe:userTaskForm>')
    inside = '<startEvent id="i"/><userTask id="u"/><sequenceFlow sourceRef="i" targetRef="u"/>'
    nested = chain(f'<subProcess id="x">{inside}</subProcess>')
    return [*files, definitions(f'<process id="p">{form}{nested}</process>')]


HERE = Path(__file__).parent
SEEDS = seeds()
DRAWN = [path.read_text("utf-8") for folder in ("files", "exports") for path in sorted((HERE / folder).iterdir())]
files = st.sampled_from(SEEDS) | st.sampled_from(DRAWN)


def check(data: bytes | str, *, ignore_extensions: bool = False) -> None:
    """Read and draw it, and check what is promised of the results."""
    try:
        found = read_bpmn(data, ignore_extensions=ignore_extensions)
    except InvalidDefinition as error:
        problems = error.problems
    else:
        for spec in found.processes:
            source = BpmnSource(spec, found.xml)
            assert decode_bpmn(encode_bpmn(source)) == source
        drawn(draw(found.xml))
        return
    assert problems
    assert all(problem.message and problem.line != 0 for problem in problems)
    with suppress(InvalidDefinition):  # a file that deploy refuses can have a picture
        drawn(draw(data if isinstance(data, str) else data.decode("utf-8", "replace")))


def mutate(text: str, random: Random) -> str:
    """The same file after a few changes that leave it well-formed."""
    root = ET.fromstring(text)
    other = list(ET.fromstring(random.choice(SEEDS)).iter())
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        parents = list(root.iter())
        parent = random.choice(parents)
        chosen = random.choice(random.choice((other, parents)))
        match random.randrange(8):
            case 0 if len(parent):
                parent.remove(random.choice(list(parent)))
            case 1:
                parent.insert(random.randrange(len(parent) + 1), deepcopy(chosen))
            case 6:
                for _ in range(random.choice((1, 3, 60, 300))):
                    parent = ET.SubElement(parent, random.choice((chosen.tag, NESTS)))
            case 2 if parent.attrib:
                parent.attrib[random.choice(list(parent.attrib))] = random.choice(NASTY)
            case 3 if parent.attrib:
                del parent.attrib[random.choice(list(parent.attrib))]
            case 4:
                parent.text = random.choice(NASTY)
            case 5:
                parent.tag = chosen.tag
            case _ if chosen.attrib:
                key = random.choice(list(chosen.attrib))
                parent.attrib[key] = chosen.attrib[key]
    return ET.tostring(root, encoding="unicode")


@settings(max_examples=100 * ROUNDS, deadline=None)
@given(st.binary(max_size=200))
@example(b"<" * 5000)
@example(b"<?xml version='1.0' encoding='utf-7'?><a/>")
@example(b"\xff\xfe<\0a\0/\0>\0\0")
@example(b"\0\0\0<")
@example(b"<a xmlns='\xc3\xa9' xmlns:xml='x'/>")
def test_b2_any_bytes_are_processes_or_have_problems(data: bytes) -> None:
    check(data)


@settings(max_examples=150 * ROUNDS, deadline=None)
@given(files, st.data())
def test_b2_a_damaged_file_is_processes_or_has_problems(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, min(len(raw), start + 60)))
    check(raw[:start] + data.draw(st.binary(max_size=8)) + raw[end:])


@settings(max_examples=500 * ROUNDS, deadline=None)
@given(files, st.integers(0, 2**60), st.booleans())
def test_b2_a_changed_file_is_processes_or_has_problems(text: str, seed: int, ignore_extensions: bool) -> None:
    check(mutate(text, Random(seed)), ignore_extensions=ignore_extensions)
