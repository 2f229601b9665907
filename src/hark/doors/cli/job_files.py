"""`hark job check|graph|schema`: check and draw a job file without running it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from hark.doors.cli.engine import local_app, open_engine
from hark.doors.cli.options import Options
from hark.doors.cli.output import colored, print_json, printable
from hark.model.errors import HarkError, InvalidDefinition, InvalidInput

if TYPE_CHECKING:
    from hark.app.job_files import Job

JobFile = Annotated[Path, typer.Argument(metavar="FILE", help="A job in YAML or JSON; - is standard input")]


def read_job(file: Path) -> "Job":
    """Load the job of a file; - is standard input.

    Raises:
        InvalidInput: The file cannot be read.
        InvalidDefinition: It has problems.
    """
    return parse_job(file, read_bytes(file))


def read_bytes(file: Path) -> bytes:
    """The bytes of a file; - is standard input."""
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}. Give a file that you may read.") from None


def parse_job(file: Path, data: bytes) -> "Job":
    from hark.app.job_files import parse_job_file

    return parse_job_file(data, f"The job file {file}", None if str(file) == "-" else file.stem)


def print_problems(file: Path, error: InvalidDefinition, to: TextIO | None = None) -> None:
    """Print one line per problem, as compilers do: editors find the place."""
    for problem in error.problems:
        place = [str(file), *([str(problem.line)] if problem.line is not None else [])]
        element = f" {problem.element}:" if problem.element is not None else ""
        print(f"{printable(':'.join(place))}:{printable(element)} {printable(problem.message)}", file=to)


def check(options: Options, file: JobFile) -> None:
    """Check a job file and print what is wrong with it.

    Exits with 1 if it has problems, with 2 if it cannot be read. Gates must be those of the app (--app), or of a live
    worker on the store (--db) or of the server (--server); a handler or an agent that none of them has is a warning.

    hark job check release.yaml
    """
    try:
        job = read_job(file)
        warnings = _check_needs(options, job)
    except InvalidDefinition as error:
        if options.json:
            problems = [vars(problem) for problem in error.problems]
            print_json({"ok": False, "name": None, "problems": problems, "warnings": []})
        else:
            print_problems(file, error)
        raise typer.Exit(1) from None
    if options.json:
        print_json({"ok": True, "name": job.name, "problems": [], "warnings": warnings})
        return
    count = len(job.spec.tasks)
    print(f"{colored('ok')}: {printable(job.name)}, {count} task{'s' if count != 1 else ''}.")
    for warning in warnings:
        print(f"{file}: warning: {printable(warning)}", file=sys.stderr)


def _check_needs(options: Options, job: "Job") -> list[str]:
    """Compare what a job needs with what there is, as far as the options say where to look. Returns warnings.

    Raises:
        InvalidDefinition: Nothing has one of its gates.
    """
    from hark.app.job_files import needs_of, unknown_gates

    needs = needs_of(job.spec)
    if not needs:
        return []
    known, where, problem = _known_handlers(options)
    if not where:
        listed = ", ".join(dict.fromkeys(map(str, needs)))
        return [f"not checked whether there is {listed}: {problem or 'give --app, --db or --server.'}"]
    missing = [need for need in needs if need.listed not in known]
    if gates := [need.name for need in missing if need.what == "gate"]:
        raise unknown_gates(job, gates)
    text = f"is not registered in {' or '.join(where)}; the task waits until a worker has it."
    found = dict.fromkeys(f"{need.task}: {need} {text}" for need in missing)
    return [*found, *([f"live workers were not asked: {problem}"] if problem is not None else [])]


def _known_handlers(options: Options) -> tuple[set[str], list[str], str | None]:
    """The handlers, agents and gates that there are, the places where the options let this command look, and why it
    could not look in one of them. A place that only the environment names may be missing: a build may set HARK_DB."""
    known, where, problem = set(), [], None
    if options.app is not None:
        from hark.app.door_access import DoorAccess

        known |= DoorAccess(local_app(options)).handlers_of_app()
        where.append("the app")
    if options.remote is not None or options.url is not None:
        try:
            with open_engine(options, "read") as hark:
                live = [worker for worker in hark.workers().result() if worker.live]
            known.update(*(worker.handlers for worker in live))
            where.append("a live worker")
        except HarkError as error:
            if options.db is not None or options.server is not None:
                raise
            problem = str(error)
    return known, where, problem


def graph(
    options: Options,
    file: JobFile,
    svg: Annotated[bool, typer.Option("--svg", help="Print an SVG drawing instead of a tree")] = False,
) -> None:
    """Draw the tasks of a job file as a tree, or as SVG.

    hark job graph release.yaml --svg > release.svg
    """
    from hark.app.job_files import draw_svg, draw_text

    spec = read_job(file).spec
    if options.json:
        print_json([
            {"name": task.name, "type": task.type, "needs": list(task.needs), "finally": task.is_finally}
            for task in spec.tasks
        ])  # fmt: skip
    elif svg:
        print(draw_svg(spec), end="")
    else:
        print("\n".join(map(printable, draw_text(spec))))


def schema(options: Options) -> None:
    """Print the JSON Schema of job files, for editors.

    hark job schema > job.schema.json
    """
    import json

    from hark.app.job_files import job_schema

    print_json(job_schema()) if options.json else print(json.dumps(job_schema(), indent=2, ensure_ascii=False))
