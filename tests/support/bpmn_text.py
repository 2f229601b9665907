"""Short texts of BPMN files, for tests that need a process and not a file of their own."""

from __future__ import annotations

from itertools import pairwise

_OPEN = (
    '<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" '
    'xmlns:zeebe="http://camunda.org/schema/zeebe/1.0" '
    'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" targetNamespace="tests">'
)


def bpmn(body: str, *, id: str = "order", around: str = "") -> str:
    """A file with one process; `around` are definitions beside it."""
    return f'{_OPEN}{around}<process id="{id}" isExecutable="true">{body}</process></definitions>'


def line(*elements: str) -> str:
    """These elements, each with an id, one after another, between a start and an end event."""
    all = ['<startEvent id="begin"/>', *elements, '<endEvent id="end"/>']
    ids = [text.partition('id="')[2].partition('"')[0] for text in all]
    flows = [
        f'<sequenceFlow id="to-{target}" sourceRef="{source}" targetRef="{target}"/>'
        for source, target in pairwise(ids)
    ]
    return "".join([*all, *flows])


def service(
    id: str, handler: str, *, retries: int | None = None, headers: dict[str, str] | None = None, more: str = ""
) -> str:
    """A service task; `more` are further elements in it."""
    times = "" if retries is None else f' retries="{retries}"'
    given = "".join(f'<zeebe:header key="{key}" value="{value}"/>' for key, value in (headers or {}).items())
    listed = f"<zeebe:taskHeaders>{given}</zeebe:taskHeaders>" if given else ""
    definition = f'<zeebe:taskDefinition type="{handler}"{times}/>'
    return f'<serviceTask id="{id}"><extensionElements>{definition}{listed}</extensionElements>{more}</serviceTask>'


def boundary(id: str, host: str, event: str, *, interrupting: bool = True) -> str:
    """A boundary event, and the end event that it leads to."""
    cancel = "" if interrupting else ' cancelActivity="false"'
    return (
        f'<boundaryEvent id="{id}" attachedToRef="{host}"{cancel}>{event}</boundaryEvent>'
        f'<endEvent id="{id}-end"/><sequenceFlow id="after-{id}" sourceRef="{id}" targetRef="{id}-end"/>'
    )
