"""The BPMN files that the benchmarks of processes run, ours and those of a peer, made of a few words each."""

from collections.abc import Iterable
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

HEAD = (
    '<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" xmlns:camunda="http://camunda.org/schema/1.0/bpmn"'
    ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" id="definitions" targetNamespace="bench">'
)


def file(process: str, elements: Iterable[str], more: str = "") -> str:
    """A file with one process."""
    body = "\n    ".join(elements)
    return f'{HEAD}{more}\n  <process id="{process}" isExecutable="true">\n    {body}\n  </process>\n</definitions>\n'


def flow(source: str, target: str, condition: str | None = None) -> str:
    head = f'<sequenceFlow id="{source}-{target}" sourceRef="{source}" targetRef="{target}"'
    if condition is None:
        return f"{head}/>"
    text = escape(condition)
    return f'{head}><conditionExpression xsi:type="tFormalExpression">{text}</conditionExpression></sequenceFlow>'


def chain(*ids: str) -> list[str]:
    return [flow(source, target) for source, target in pairwise(ids)]


def service(id: str, handler: str, loop: str = "") -> str:
    return f'<serviceTask id="{id}" camunda:type="external" camunda:topic="{handler}">{loop}</serviceTask>'


def gateway(id: str, default: str | None = None) -> str:
    return f'<exclusiveGateway id="{id}"{"" if default is None else f" default={quoteattr(default)}"}/>'


def services() -> str:
    """Start, three service tasks, an exclusive gateway, end."""
    return file("services", [
        '<startEvent id="start"/>', *(service(f"s{n}", "nothing") for n in range(3)), gateway("xor", "xor-small"),
        '<endEvent id="large"/>', '<endEvent id="small"/>', *chain("start", "s0", "s1", "s2", "xor"),
        flow("xor", "large", "${n > 100}"), flow("xor", "small"),
    ])  # fmt: skip


def scripts(*, python: bool) -> str:
    """Ten elements without a handler: two gateways and six script tasks between start and end.

    The scripts are FEEL or, for a peer, Python; the conditions are the same text, marked as FEEL for us."""

    def script(id: str, name: str, value: str) -> str:
        if python:
            return f'<scriptTask id="{id}"><script>{name} = {value}</script></scriptTask>'
        head = f'<scriptTask id="{id}" scriptFormat="feel" camunda:resultVariable="{name}">'
        return f"{head}<script>{value}</script></scriptTask>"

    condition = "n > 100" if python else "=n > 100"
    return file("scripts", [
        '<startEvent id="start"/>', script("s1", "n", "n + 1"), script("s2", "double", "n * 2"),
        gateway("xor", "xor-s4"), script("s3", "size", '"large"'), script("s4", "size", '"small"'), gateway("merge"),
        script("s5", "n", "n + double"), script("s6", "done", "n"), '<endEvent id="end"/>',
        *chain("start", "s1", "s2", "xor"),
        flow("xor", "s3", condition), flow("xor", "s4"), flow("s3", "merge"), *chain("s4", "merge", "s5", "s6", "end"),
    ])  # fmt: skip


def listening() -> str:
    """A process that waits for the signal `go`."""
    catch = '<intermediateCatchEvent id="go"><signalEventDefinition signalRef="signal"/></intermediateCatchEvent>'
    elements = ['<startEvent id="start"/>', catch, '<endEvent id="end"/>', *chain("start", "go", "end")]
    return file("listening", elements, '<signal id="signal" name="go"/>')


def many(activity: str, *, collection: bool) -> str:
    """A parallel multi-instance of `n` service, script or user tasks, over the list `items` or so many times."""
    if collection:
        loop = '<multiInstanceLoopCharacteristics camunda:collection="items" camunda:elementVariable="item"/>'
    else:
        times = "<loopCardinality>${n}</loopCardinality>"
        loop = f"<multiInstanceLoopCharacteristics>{times}</multiInstanceLoopCharacteristics>"
    body = {
        "service": service("each", "nothing", loop),
        "script": f'<scriptTask id="each" scriptFormat="feel">{loop}<script>loopCounter + 1</script></scriptTask>',
        "user": f'<userTask id="each">{loop}</userTask>',
    }[activity]
    name = f"{activity}-{'collection' if collection else 'cardinality'}"
    return file(name, ['<startEvent id="start"/>', body, '<endEvent id="end"/>', *chain("start", "each", "end")])


def large(elements: int, salt: int = 0) -> str:
    """A file of about so many elements: tasks of all kinds, gateways with conditions, boundary events, sub-processes.

    A block has eleven elements, its flows not counted. Files with another `salt` have other expressions: what was
    compiled for one does not help with another."""
    blocks = [
        [
            service(f"call{n}", "nothing"),
            f'<boundaryEvent id="late{n}" attachedToRef="call{n}"><timerEventDefinition>'
            f"<timeDuration>PT5M</timeDuration></timerEventDefinition></boundaryEvent>",
            f'<scriptTask id="script{n}" scriptFormat="feel" camunda:resultVariable="total">'
            f"<script>total + price * {salt + n}</script></scriptTask>",
            gateway(f"choose{n}", f"choose{n}-user{n}"),
            f'<userTask id="user{n}" name="Check order {n}" camunda:assignee="${{clerk}}"/>',
            f'<subProcess id="sub{n}"><startEvent id="in{n}"/>{service(f"pack{n}", "nothing")}<endEvent id="out{n}"/>'
            f"{''.join(chain(f'in{n}', f'pack{n}', f'out{n}'))}</subProcess>",
            gateway(f"merge{n}"), f'<intermediateThrowEvent id="told{n}" name="Told"/>',
            *chain(f"call{n}", f"script{n}", f"choose{n}"), flow(f"late{n}", f"script{n}"),
            flow(f"choose{n}", f"sub{n}", f"${{total > {salt + n}}}"), flow(f"choose{n}", f"user{n}"),
            flow(f"sub{n}", f"merge{n}"), flow(f"user{n}", f"merge{n}"), flow(f"merge{n}", f"told{n}"),
            flow(f"told{n}", f"call{n + 1}" if n + 1 < -(-elements // 11) else "end"),
        ]
        for n in range(-(-elements // 11))
    ]  # fmt: skip
    ends = ['<startEvent id="start"/>', '<endEvent id="end"/>', flow("start", "call0")]
    return file("large", [*ends, *(line for block in blocks for line in block)])
