"""B2: whatever is given to `read_bpmn`, it has checked processes, or is an InvalidDefinition with problems, soon."""

import os
import xml.etree.ElementTree as ET
from copy import deepcopy
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from hark import InvalidDefinition
from hark.programs.bpmn.bpmn_spec import BpmnSource, decode_bpmn, encode_bpmn
from hark.programs.bpmn.file import read_bpmn
from tests.bpmn.small_files import bpmn_file, chain, definitions, ext
from tests.bpmn.test_b2_activities import CALLS, HANDLERS, LOOPS, SCRIPTS, USERS
from tests.bpmn.test_b2_bad_files import IN_A_CHAIN, IN_A_PROCESS
from tests.bpmn.test_b2_events import AROUND, BOUNDARIES, CAUGHT, THROWN
from tests.bpmn.test_b2_extensions import REFUSED

ROUNDS = int(os.environ.get("HARK_FUZZ", "1"))
NASTY = (
    "", " ", "${", "=", "=1 +", "#{x}", "²", "9" * 5000, "R/PT1S", "R99999999999999999999/PT1S", "P", "PT0S", "x" * 300,
    "a:b", ":", "tns:", "PT" + "9" * 400 + "S", "2030-99-99", "* * * * *", "R/2030-01-01/PT0S", "[", "[1, 2]", "true",
    '{"components": [{"type": "group", "components": [[]]}]}', '{"components": {}}', "0", "-1", "NaN", "${a.b(1)}",
    "a#b", "\u2028", "=" + "(" * 500, "=[" * 200, "${" + "!" * 500 + "x}", "1e999", "processInstance", "all",
    "s", "e", "n", "p",
)  # fmt: skip


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


SEEDS = seeds()


def check(data: bytes | str, *, ignore_extensions: bool = False) -> None:
    """Read it, and check what is promised of the result."""
    try:
        found = read_bpmn(data, ignore_extensions=ignore_extensions)
    except InvalidDefinition as error:
        problems = error.problems
    else:
        for spec in found.processes:
            source = BpmnSource(spec, found.xml)
            assert decode_bpmn(encode_bpmn(source)) == source
        return
    assert problems
    assert all(problem.message and problem.line != 0 for problem in problems)


def mutate(text: str, random: Random) -> str:
    """The same file after a few changes that leave it well-formed."""
    root = ET.fromstring(text)
    other = list(ET.fromstring(random.choice(SEEDS)).iter())
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        parents = list(root.iter())
        parent = random.choice(parents)
        chosen = random.choice(other)
        match random.randrange(7):
            case 0 if len(parent):
                parent.remove(random.choice(list(parent)))
            case 1:
                parent.insert(random.randrange(len(parent) + 1), deepcopy(chosen))
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
@given(st.sampled_from(SEEDS), st.data())
def test_b2_a_damaged_file_is_processes_or_has_problems(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, min(len(raw), start + 60)))
    check(raw[:start] + data.draw(st.binary(max_size=8)) + raw[end:])


@settings(max_examples=500 * ROUNDS, deadline=None)
@given(st.sampled_from(SEEDS), st.integers(0, 2**60), st.booleans())
def test_b2_a_changed_file_is_processes_or_has_problems(text: str, seed: int, ignore_extensions: bool) -> None:
    check(mutate(text, Random(seed)), ignore_extensions=ignore_extensions)
