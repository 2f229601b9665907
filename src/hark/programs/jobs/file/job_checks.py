"""Check the tasks of a job together: names, needs, cycles, and the tasks that a task may refer to."""

from __future__ import annotations

from collections.abc import Mapping

from hark.model.nearest import did_you_mean
from hark.programs.jobs.file.job_reading import JobDraft, TaskDraft


def check_graph(draft: JobDraft) -> Ancestors | None:
    """Report duplicate names, unknown needs, cycles, and regressions to a task that does not come before.

    Returns:
        Which tasks come before which; None if there is a cycle.
    """
    by_name = _named(draft)
    _check_results(draft)
    for task in draft.tasks:
        _check_needs(draft, task, by_name)
    if cycle := _find_cycle(by_name):
        first = min(cycle, key=lambda task: task.node.line or 0)
        turn = cycle.index(first)
        names = [task.element for task in (*cycle[turn:], *cycle[:turn], first)]
        draft.report(first.name, first.at("needs").line, f"Its needs form a cycle: {' needs '.join(names)}.")
        return None
    before = Ancestors(by_name)
    for task in draft.tasks:
        _check_regression(draft, task, by_name, before)
    return before


def _named(draft: JobDraft) -> dict[str, TaskDraft]:
    """The tasks by name. The second task of a name is a problem."""
    found: dict[str, TaskDraft] = {}
    for task in draft.tasks:
        if task.name is None:
            continue
        if task.name in found:
            line = found[task.name].at("name").line
            where = f" The first one is in line {line}." if line is not None else ""
            draft.report(task.name, task.at("name").line, f"There are two tasks named {task.name!r}.{where}")
        else:
            found[task.name] = task
    return found


def _check_results(draft: JobDraft) -> None:
    """Two tasks must not write the same name in the result."""
    taken: dict[str, str] = {}
    for task in draft.tasks:
        if task.spec is None:
            continue
        result = task.spec.var or task.spec.name
        holder = taken.setdefault(result, task.spec.name)
        if holder != task.spec.name:
            draft.report(
                task.name, task.at("var").line, f"Its result has the name {result!r}, as that of the task {holder!r}."
            )


def _check_needs(draft: JobDraft, task: TaskDraft, by_name: Mapping[str, TaskDraft]) -> None:
    line = task.at("needs").line
    for need in task.needs:
        other = by_name.get(need)
        if other is None:
            draft.report(task.name, line, f"It needs {need!r}, which is not a task.{did_you_mean(need, by_name)}")
        elif other.is_finally and not task.is_finally:
            draft.report(task.name, line, f"It needs {need!r}, which is under `finally` and runs after all tasks.")
        elif task.is_finally and not other.is_finally:
            draft.report(
                task.name, line, f"It needs {need!r}, but a task under `finally` waits for all tasks. Remove the need."
            )
    when = task.spec.when if task.spec is not None else "all_success"
    if when == "one_failed" and not task.needs and not task.is_finally:
        draft.report(task.name, task.at("when").line, "when: one_failed looks at the needs of the task; it has none.")


def _find_cycle(by_name: Mapping[str, TaskDraft]) -> list[TaskDraft] | None:
    """A cycle among the needs, in order; None if there is none. Without recursion: a chain may have 10,000 tasks."""
    done: set[str] = set()
    for start in by_name:
        if start in done:
            continue
        path: list[str] = [start]
        on_path = {start}
        todo = [iter(by_name[start].needs)]
        while todo:
            need = next(todo[-1], None)
            if need is None:
                todo.pop()
                gone = path.pop()
                on_path.discard(gone)
                done.add(gone)
            elif need in on_path:
                return [by_name[name] for name in path[path.index(need) :]]
            elif need in by_name and need not in done:
                path.append(need)
                on_path.add(need)
                todo.append(iter(by_name[need].needs))
    return None


class Ancestors:
    """The tasks that come before each task: one bit per task, so that 10,000 tasks in a chain need 12 MB and no
    recursion.

    The needs must not have a cycle.
    """

    def __init__(self, by_name: Mapping[str, TaskDraft]) -> None:
        self._number = {name: number for number, name in enumerate(by_name)}
        self._before: dict[str, int] = {}
        for start in by_name:
            todo = [start]
            while todo:
                name = todo[-1]
                needs = [need for need in by_name[name].needs if need in by_name]
                missing = [need for need in needs if need not in self._before]
                if name in self._before or not missing:
                    todo.pop()
                    self._before.setdefault(name, self._union(needs))
                else:
                    todo += missing

    def _union(self, needs: list[str]) -> int:
        bits = 0
        for need in needs:
            bits |= self._before[need] | 1 << self._number[need]
        return bits

    def is_before(self, earlier: str, later: str) -> bool:
        """Return True if `later` needs `earlier`, directly or through others."""
        return bool(self._before[later] >> self._number[earlier] & 1)


def _check_regression(draft: JobDraft, task: TaskDraft, by_name: Mapping[str, TaskDraft], before: Ancestors) -> None:
    if task.spec is None or task.spec.on_fail is None:
        return
    target = task.spec.on_fail.regress_to
    line = task.at("on_fail").line
    if target not in by_name:
        hint = did_you_mean(target, by_name)
        draft.report(task.name, line, f"It regresses to {target!r}, which is not a task.{hint}")
    elif target != task.spec.name and not before.is_before(target, task.spec.name):
        draft.report(
            task.name, line, f"It regresses to {target!r}, which does not come before it. Add it to its needs."
        )
