"""`hark bpmn deploy|undeploy|list|check|render`: BPMN processes in a store, and BPMN files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hark.doors.cli.commands import command, group
from hark.doors.cli.completion import definitions
from hark.doors.cli.engine import door_access, open_engine, read_up_to
from hark.doors.cli.job_files import print_problems, read_bytes
from hark.doors.cli.options import Options, SvgFile
from hark.doors.cli.output import colored, print_json, print_svg, printable
from hark.doors.cli.tables import print_table
from hark.model.errors import InvalidDefinition, InvalidInput

if TYPE_CHECKING:
    from hark.app.bpmn_files import CheckedFile
    from hark.model.problem import Problem

BpmnFiles = Annotated[list[Path], typer.Argument(metavar="FILE…", help="BPMN 2.0 files; - is standard input")]
BpmnPath = Annotated[Path, typer.Argument(metavar="FILE", help="A BPMN 2.0 file; - is standard input")]
IgnoreExtensions = Annotated[
    bool,
    typer.Option(
        "--ignore-extensions", help="Accept extensions of other engines that Hark does not run: they do nothing"
    ),
]

cli = group("Deploy, list, check and draw BPMN processes.")


@command(cli)
def deploy(options: Options, files: BpmnFiles, ignore_extensions: IgnoreExtensions = False) -> None:
    """Put the processes of BPMN files into the store.

    They can be started by their ids from then on, with `hark start ID`, and their start events apply. The same text
    again makes no new version. If one of the files has problems, nothing is deployed.

    hark bpmn deploy order.bpmn
    """
    read = [(file, read_bytes(file)) for file in files]
    refused = 0
    for file, data in read:
        try:
            _check(data, ignore_extensions)
        except InvalidDefinition as error:
            refused += 1
            print_problems(file, error, to=sys.stderr)
    if refused:
        raise InvalidInput("Nothing was deployed: correct the problems above, or see `hark bpmn check --help`.")
    deployed: list[tuple[str, int]] = []
    with open_engine(options, "create") as hark:
        for _, data in read:
            deployed += hark.deploy(data, ignore_extensions=ignore_extensions).result()
    if options.json:
        print_json([{"name": name, "version": version} for name, version in deployed])
        return
    for name, version in deployed:
        print(f"{printable(name)} version {version}")


@command(cli)
def undeploy(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The id of a process", autocompletion=definitions)],
) -> None:
    """Prevent new instances of a process, also those that its start events would start.

    Instances that have started run to their end. Deploy the process again to start it again.

    hark bpmn undeploy order
    """
    with open_engine(options) as hark:
        hark.undeploy(name).result()
    print_json({"undeployed": name}) if options.json else print(f"{printable(name)} is undeployed.")


@command(cli, "list")
def list_(options: Options) -> None:
    """List the deployed processes and their newest versions.

    hark bpmn list
    """
    with open_engine(options, "read") as hark:
        every = read_up_to(10_000, None, door_access(hark).startable)
    found = [{"name": one.name, "version": one.version} for one in every if one.kind == "bpmn"]
    if options.json:
        print_json(found)
        return
    rows = ([one["name"], str(one["version"])] for one in found)
    print_table(("PROCESS", "VERSION"), rows, "No processes. Deploy some with `hark bpmn deploy FILE`.")


@command(cli)
def check(options: Options, files: BpmnFiles, ignore_extensions: IgnoreExtensions = False) -> None:
    """Check BPMN files and print what a deploy would refuse, and what it would ignore.

    Exits with 0 if a deploy would accept all of them, with 1 if not, with 2 if a file cannot be read. Each line begins
    with the file and the line, so editors find the place.

    hark bpmn check order.bpmn
    """
    results: list[dict[str, Any]] = []
    for file, data in [(file, read_bytes(file)) for file in files]:
        result: dict[str, Any] = {"file": str(file), "ok": True, "processes": [], "problems": [], "ignored": []}
        results.append(result)
        try:
            checked = _check(data, ignore_extensions)
        except InvalidDefinition as error:
            result |= {"ok": False, "problems": [vars(problem) for problem in error.problems]}
            if not options.json:
                print_problems(file, error)
            continue
        result |= {"processes": checked.processes, "ignored": [vars(problem) for problem in checked.ignored]}
        if not options.json:
            _print_checked(file, checked)
    if options.json:
        print_json(results)
    if not all(result["ok"] for result in results):
        raise typer.Exit(1)


@command(cli)
def render(
    options: Options,
    file: BpmnPath,
    process: Annotated[
        str | None, typer.Option("--process", metavar="ID", help="Draw only this process of the file")
    ] = None,
    output: SvgFile = None,
) -> None:
    """Draw a BPMN file as SVG, also one that a deploy refuses.

    It uses the coordinates of the file; a file without coordinates gets a layout.

    hark bpmn render order.bpmn -o order.svg
    """
    from hark.app.bpmn_files import render_bpmn

    print_svg(render_bpmn(read_bytes(file), process), output, as_json=options.json)


def _check(data: bytes, ignore_extensions: bool) -> "CheckedFile":
    from hark.app.bpmn_files import check_bpmn

    return check_bpmn(data, ignore_extensions=ignore_extensions)


def _print_checked(file: Path, checked: "CheckedFile") -> None:
    print(f"{colored('ok')}: {printable(str(file))}: {printable(', '.join(checked.processes))}")
    for problem in checked.ignored:
        print(f"  ignored: {printable(_place(problem))}{printable(problem.message)}")


def _place(problem: "Problem") -> str:
    place = "" if problem.line is None else f"line {problem.line}: "
    return place if problem.element is None else f"{place}{problem.element}: "
