"""Draw jobs and processes that are in the store, for the doors.

A read returns a function that draws: the thread that reads the store has other work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hark.app.job_files import draw_svg
from hark.model.errors import InvalidInput, NotFound
from hark.model.lanes import BPMN
from hark.store import statements as sql
from hark.store.protocol import Store
from hark.views import instance_views, job_reporting

Drawing = Callable[[], str]
"""Makes the SVG."""


async def draw_definition(store: Store, name: str) -> Drawing:
    """The newest version of a deployed job or process as SVG.

    Raises:
        NotFound: There is none of this name.
    """
    found = await store.read(sql.newest_definitions, names=[name])
    if not found:
        raise NotFound(f"There is no deployed job or process {name!r}. `GET /definitions` lists names.")
    _, version, kind, _ = found[0]
    if kind == BPMN:
        from hark.programs.bpmn.drawing.bpmn_drawing import draw  # only programs with processes need it
        from hark.views.bpmn_diagram import xml_of

        return partial(draw, await xml_of(store, name, version), name)
    return partial(draw_svg, await job_reporting.spec_of(store, name, version))


async def draw_instance(store: Store, target: str) -> Drawing:
    """A job with the states of its tasks, or a process with its tokens, as SVG.

    Raises:
        NotFound: There is no such instance.
        InvalidInput: It is neither a job nor a process.
    """
    instance = await instance_views.get(store, target)
    if instance.kind == BPMN:
        from hark.programs.bpmn.drawing.bpmn_drawing import draw
        from hark.views.bpmn_diagram import marks_of, xml_of

        xml = await xml_of(store, instance.definition, instance.version)
        return partial(draw, xml, instance.definition, await marks_of(store, instance))
    if instance.kind != "job":
        raise InvalidInput(f"{target!r} is a {instance.kind}: only jobs and processes have a diagram.")
    report = await job_reporting.report(store, instance.id, {})
    spec = await job_reporting.spec_of(store, instance.definition, instance.version)
    return partial(draw_svg, spec, {task.name: task.status for task in report.tasks})
