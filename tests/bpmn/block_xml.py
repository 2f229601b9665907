"""Block-structured processes as BPMN files."""

from __future__ import annotations

from itertools import pairwise
from xml.sax.saxutils import escape

from tests.bpmn.blocks import (
    Block,
    Choice,
    Inclusive,
    Loop,
    Many,
    Parallel,
    Raise,
    Repeat,
    Scope,
    Sequence,
    Task,
    Undo,
    Undoable,
)


def as_bpmn(process: str, block: Block) -> str:
    """The process as a BPMN file."""
    writer = _Writer()
    writer.scope("root", block)
    signals = "".join(f'<signal id="{name}" name="{name}"/>\n' for name in writer.signals)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" targetNamespace="urn:hark:tests">\n'
        f'{signals}<error id="oops" errorCode="oops"/>\n<process id="{process}" isExecutable="true">\n'
        + "\n".join(writer.lines)
        + "\n</process>\n</definitions>\n"
    )


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.signals: list[str] = []

    def scope(self, name: str, block: Block) -> None:
        self.lines.append(f'<startEvent id="{name}_start"/>')
        first, last = self.block(block)
        self.lines.append(f'<endEvent id="{name}_end"/>')
        self.flow(f"{name}_start", first)
        self.flow(last, f"{name}_end")

    def flow(self, source: str, target: str, variable: str | None = None) -> str:
        id = f"f{len(self.lines)}"
        inside = f"<conditionExpression>{escape('${' + variable + '}')}</conditionExpression>" if variable else ""
        self.lines.append(f'<sequenceFlow id="{id}" sourceRef="{source}" targetRef="{target}">{inside}</sequenceFlow>')
        return id

    def block(self, block: Block) -> tuple[str, str]:
        """Write a block; the ids of its first and its last node."""
        match block:
            case Task(name):
                self.lines.append(f'<userTask id="{name}"/>')
                return name, name
            case Sequence(blocks):
                ends = [self.block(one) for one in blocks]
                for (_, before), (after, _) in pairwise(ends):
                    self.flow(before, after)
                return ends[0][0], ends[-1][1]
            case Parallel(name, blocks):
                self._split("parallelGateway", name, [(None, one) for one in blocks])
            case Choice(name, branches, otherwise):
                self._split("exclusiveGateway", name, [*branches, (None, otherwise)])
            case Inclusive(name, branches, otherwise):
                self._split("inclusiveGateway", name, [*branches, (None, otherwise)])
            case Loop(name, variable, body):
                first, last = self.block(body)
                at = len(self.lines)
                self.flow(f"{name}_split", f"{name}_join", variable)
                self.lines.insert(at, f'<exclusiveGateway id="{name}_join"/>')
                self.flow(f"{name}_join", first)
                self.flow(last, f"{name}_split")
                leave = f"{name}_leave"
                self.lines.append(f'<exclusiveGateway id="{name}_split" default="{leave}"/>')
                self.lines.append(f'<task id="{name}_after"/>')
                self.lines.append(f'<sequenceFlow id="{leave}" sourceRef="{name}_split" targetRef="{name}_after"/>')
                return f"{name}_join", f"{name}_after"
            case Many(name, times):
                self.lines.append(f'<userTask id="{name}">{_instances(times)}</userTask>')
                return name, name
            case Undoable(name):
                self.lines += [
                    f'<userTask id="{name}"/><userTask id="{block.handler}" isForCompensation="true"/>',
                    f'<boundaryEvent id="{name}_on" attachedToRef="{name}">',
                    "<compensateEventDefinition/></boundaryEvent>",
                    f'<association id="{name}_by" sourceRef="{name}_on" targetRef="{block.handler}"/>',
                ]
                return name, name
            case Undo(name):
                self.lines.append(
                    f'<intermediateThrowEvent id="{name}"><compensateEventDefinition/></intermediateThrowEvent>'
                )
                return name, name
            case Raise(name, variable):
                self.flow(name, f"{name}_split")
                self.flow(f"{name}_split", f"{name}_oops", variable)
                leave = self.flow(f"{name}_split", f"{name}_after")
                self.lines += [
                    f'<userTask id="{name}"/><task id="{name}_after"/>',
                    f'<exclusiveGateway id="{name}_split" default="{leave}"/>',
                    f'<endEvent id="{name}_oops"><errorEventDefinition errorRef="oops"/></endEvent>',
                ]
                return name, f"{name}_after"
            case Repeat(name, body, times):
                self.lines.append(f'<subProcess id="{name}">{_instances(times, sequential=True)}')
                self.scope(name, body)
                self.lines.append("</subProcess>")
                return name, name
            case Scope(name, body, interrupting, catches):
                self.lines.append(f'<subProcess id="{name}">')
                self.scope(name, body)
                cancel = "true" if interrupting else "false"
                self.signals.append(block.signal)
                self.lines += [
                    "</subProcess>",
                    f'<boundaryEvent id="{name}_event" attachedToRef="{name}" cancelActivity="{cancel}">',
                    f'<signalEventDefinition signalRef="{block.signal}"/></boundaryEvent>',
                    f'<userTask id="{block.handler}"/>',
                    f'<exclusiveGateway id="{name}_join"/>',
                ]
                self.flow(f"{name}_event", block.handler)
                self.flow(name, f"{name}_join")
                if interrupting:
                    self.flow(block.handler, f"{name}_join")
                if catches:
                    self.lines += [
                        f'<boundaryEvent id="{name}_caught" attachedToRef="{name}">',
                        "<errorEventDefinition/></boundaryEvent>",
                        f'<userTask id="{block.rescue}"/>',
                    ]
                    self.flow(f"{name}_caught", block.rescue)
                    self.flow(block.rescue, f"{name}_join")
                return name, f"{name}_join"
        return f"{name}_split", f"{name}_join"

    def _split(self, tag: str, name: str, branches: list[tuple[str | None, Block]]) -> None:
        conditional = any(variable for variable, _ in branches)
        flows: list[str] = []
        for variable, block in branches:
            first, last = self.block(block)
            flows.append(self.flow(f"{name}_split", first, variable))
            self.flow(last, f"{name}_join")
        default = f' default="{flows[-1]}"' if conditional else ""
        self.lines.append(f'<{tag} id="{name}_split"{default}/>')
        self.lines.append(f'<{tag} id="{name}_join"/>')


def _instances(times: int, *, sequential: bool = False) -> str:
    flag = "true" if sequential else "false"
    return (
        f'<multiInstanceLoopCharacteristics isSequential="{flag}"><loopCardinality>{times}</loopCardinality>'
        "</multiInstanceLoopCharacteristics>"
    )
