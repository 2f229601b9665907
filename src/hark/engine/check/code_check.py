"""CodeCheck: judges unfinished instances by the code of a registry, one after the other (V2)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from hark.engine.worker.registry import Program, Registry
from hark.model.activation import Claim
from hark.model.decisions import NewInstance
from hark.model.errors import NonDeterministic
from hark.model.lanes import BPMN, BULK, JOB, code_lane, gate_lane, what_runs
from hark.model.names import from_micros
from hark.model.report import LiveProblem, Report

if TYPE_CHECKING:
    from hark.programs.functions.function_program import FunctionProgram

Version = tuple[str, int]
New = Callable[[Any, Any, dict[str, Any]], NewInstance]


class CheckServices:
    """The services of a replay that begins nothing: see FunctionServices."""

    tracing = None

    def __init__(self, new: New, rate_limit: Any, concurrency_key: Any, max_payload: int, now: int) -> None:
        self.new, self.rate_limit, self.concurrency_key = new, rate_limit, concurrency_key
        self.max_payload = max_payload
        self.running_session: Any = None
        self.current_thread = threading.get_ident
        self._now = now

    def call(self, function: Callable[..., Any], *args: Any) -> NoReturn:
        raise AssertionError("a check runs no function of a user")

    def link(self, id: str, nonce: str, deadline: int | None) -> str:
        return ""

    def micros(self) -> int:
        return self._now

    def now(self) -> Any:
        return from_micros(self._now)


class CodeCheck:
    """Collects what the code of a registry does to the instances that it is given."""

    def __init__(self, registry: Registry, names: Collection[str] | None, services: Any) -> None:
        """`names`: the definitions that are checked, whose patches count; None for all."""
        self._registry = registry
        self._names = names
        self._services = services
        self._sources: dict[Version, str] = {}
        self._continues = 0
        self._problems: list[LiveProblem] = []
        self._needed: dict[Version, set[str]] = {}
        self._unread: set[Version] = set()  # functions with an instance that could not be replayed to its end

    def lacks_source(self, claims: Iterable[Claim]) -> list[Version]:
        """The jobs and processes whose source is needed to judge these."""
        wanted = {(one.definition, one.version) for one in claims if one.kind in (JOB, BPMN)}
        return sorted(wanted - self._sources.keys())

    def add_source(self, name: str, version: int, source: str) -> None:
        self._sources[name, version] = source

    def add(self, claims: Iterable[Claim]) -> None:
        """Judge instances. Replays run in the thread of the caller."""
        for claim in claims:
            found = [*self._judge(claim)]
            self._problems += found
            self._continues += not found

    def report(self) -> Report:
        return Report(self._continues, tuple(self._problems), tuple(sorted(self._unneeded_patches())))

    def _judge(self, claim: Claim) -> Iterator[LiveProblem]:
        if claim.lane == BULK:  # the code of Hark
            return
        if claim.kind == "task":
            yield from self._without_lane(claim, claim.lane)
        elif claim.kind == JOB:
            yield from self._judge_job(claim)
        elif claim.kind == BPMN:
            yield from self._judge_process(claim)
        else:
            yield from self._judge_code(claim)

    def _judge_code(self, claim: Claim) -> Iterator[LiveProblem]:
        program = self._registry.find(claim.definition, claim.version)
        if program is None or program.kind != claim.kind:
            yield self._without_version(claim, program)
        elif claim.kind == "workflow":
            yield from self._judge_function(program, claim)
        else:
            from hark.programs.machines.steps import misfit_of

            misfit = misfit_of(program, claim)  # type: ignore[arg-type]
            if misfit is not None:
                yield _problem(claim, misfit, self._advice_for_machine(claim, misfit))

    def _judge_function(self, program: Any, claim: Claim) -> Iterator[LiveProblem]:
        from hark.programs.functions.function_check import check_function

        found = check_function(program, claim, self._services)
        version = claim.definition, claim.version
        self._needed.setdefault(version, set()).update(found.needed)
        if found.misfit is not None:
            self._unread.add(version)
            yield _problem(claim, found.misfit, self._advice_for_function(claim, found.misfit))
        elif found.failure is not None:
            self._unread.add(version)
            raised = f"{type(found.failure).__name__}: {found.failure}"
            misfit = NonDeterministic(
                f"It raises {raised}.", cause=raised, expected="to go on", found=raised, line=_raised_at(found.failure)
            )
            yield _problem(
                claim,
                misfit,
                "It fails as soon as it runs next. Correct the code, or what it is called with; or "
                f"{self._apart(claim)}",
            )

    def _judge_job(self, claim: Claim) -> Iterator[LiveProblem]:
        from hark.programs.jobs import states
        from hark.programs.jobs.job_graph import is_registered_gate, job_graph
        from hark.programs.jobs.job_state import START, load_job_state
        from hark.programs.jobs.new_tasks import is_interpreted, lane_of

        source = self._sources.get((claim.definition, claim.version))
        try:
            graph = job_graph(source or "")
            letters = None if claim.step == START else load_job_state(claim.state).tasks
        except Exception as error:
            yield _unreadable(claim, error)
            return
        for number, task in enumerate(graph.tasks):
            if letters is not None and letters[number] not in states.UNFINISHED:
                continue
            if task.gate is not None and is_registered_gate(task.gate):
                yield from self._without_lane(claim, gate_lane(task.gate))
            if not is_interpreted(task) and (letters is None or letters[number] == states.PENDING):
                yield from self._without_lane(claim, lane_of(task))

    def _judge_process(self, claim: Claim) -> Iterator[LiveProblem]:
        from hark.programs.bpmn.interpreter.bpmn_graph import bpmn_graph

        try:
            bpmn_graph(self._sources.get((claim.definition, claim.version), ""))
        except Exception as error:
            yield _unreadable(claim, error)

    def _without_lane(self, claim: Claim, lane: str) -> Iterator[LiveProblem]:
        if lane not in self._registry.lanes():
            yield _lack(
                claim, what_runs(lane), "it is not registered",
                "Keep it registered until these instances have ended. If another program serves it, name the "
                "definitions of this one with --definition.",
            )  # fmt: skip

    def _without_version(self, claim: Claim, other: Program | None) -> LiveProblem:
        have = self._versions(claim.definition)
        if other is not None:
            found = f"it is a {other.kind} now"
        elif have:
            found = f"version {' and '.join(map(str, have))}"
        else:
            found = "it is not registered"
        if have and other is None:
            advice = (
                f"Keep version {claim.version} registered beside the new one until its instances have ended (`hark "
                f"definition list` counts them), or move them: `hark instance migrate --definition {claim.definition} "
                f"--to {max(have)}`."
            )
        else:
            advice = (
                "Keep its code registered until its instances have ended, or cancel them. If another program runs "
                "them, name the definitions of this one with --definition."
            )
        expected = what_runs(code_lane(claim.definition, claim.version))
        return _lack(claim, expected, found, advice)

    def _versions(self, name: str) -> list[int]:
        return sorted(program.version for program in self._registry.programs() if program.name == name)

    def _apart(self, claim: Claim) -> str:
        next_version = max([*self._versions(claim.definition), claim.version]) + 1
        return (
            f"give the changed code version={next_version} and keep the code of version {claim.version} registered "
            "beside it until its instances have ended."
        )

    def _advice_for_function(self, claim: Claim, misfit: NonDeterministic) -> str:
        if misfit.entry is None and misfit.expected is not None:
            return (
                "Give new parameters a default, so that it can be called with its stored input; or "
                f"{self._apart(claim)}"
            )
        if misfit.entry is None:
            return "Correct the call."
        if misfit.__cause__ is not None:
            return f"Correct the code: it raises where it went on before. Or {self._apart(claim)}"
        if _is_error(misfit):
            return f"Let its type read what was stored: give new fields a default; or {self._apart(claim)}"
        return (
            'Guard the change: `if ctx.patched("NAME"):` the new code, `else:` the old code, which asked for '
            f"{misfit.expected}; or {self._apart(claim)}"
        )

    def _advice_for_machine(self, claim: Claim, misfit: NonDeterministic) -> str:
        following = max([*self._versions(claim.definition), claim.version]) + 1
        migrate = f"hark instance migrate --definition {claim.definition} --to {following}"
        if misfit.line is None and misfit.expected is not None and misfit.expected.startswith("step "):
            step = misfit.expected.removeprefix("step ").strip("'")
            return f"Keep the step; or {self._apart(claim)} Then `{migrate} --map {step}=NEW` can move them."
        return (
            f"Let the state read what was stored: give new fields a default; or {self._apart(claim)} Then `{migrate} "
            "--state module:function` can move them, with a function from the old state to the new one."
        )

    def _unneeded_patches(self) -> set[str]:
        from hark.programs.functions.function_check import patches_of

        names: set[str] = set()
        needed: set[str] = set()
        for program in self._functions():
            version, found = (program.name, program.version), patches_of(program.function)
            names |= found
            needed |= found if version in self._unread else self._needed.get(version, set())
        return names - needed

    def _functions(self) -> Iterator[FunctionProgram]:
        for program in self._registry.programs():
            if program.kind == "workflow" and (self._names is None or program.name in self._names):
                yield program  # type: ignore[misc]


def _problem(claim: Claim, misfit: NonDeterministic, advice: str) -> LiveProblem:
    expected, found = misfit.expected or "code that fits", misfit.found or misfit.cause
    if misfit.__cause__ is None and not _is_error(misfit):
        cause = _difference(expected, found)
    elif misfit.line is None:
        cause = misfit.cause
    else:
        cause = found.partition(":")[0]  # the class: its text may have data, and the line says enough
    return LiveProblem(
        claim.id, claim.definition, claim.version, misfit.entry, misfit.line, expected, found, advice, cause
    )


def _is_error(misfit: NonDeterministic) -> bool:
    """Return True if the code has raised an error, which is its cause. Else the cause is the text itself."""
    return not str(misfit).startswith(misfit.cause)


def _lack(claim: Claim, expected: str, found: str, advice: str) -> LiveProblem:
    cause = _difference(expected, found)
    return LiveProblem(claim.id, claim.definition, claim.version, None, None, expected, found, advice, cause)


def _difference(expected: str, found: str) -> str:
    return f"{expected}: {found}"


def _unreadable(claim: Claim, error: Exception) -> LiveProblem:
    return _lack(
        claim, "a source that this version of Hark reads", f"{type(error).__name__}: {error}",
        "Run it with the version of Hark that it was deployed with.",
    )  # fmt: skip


def _raised_at(error: BaseException) -> str | None:
    trace = error.__traceback__
    if trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
