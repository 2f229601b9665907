"""Declare commands and groups of commands: `@command(group)` on a function adds the shared options."""

import inspect
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from hark.doors.cli.help import Command, Group, Root, StoreCommand
from hark.doors.cli.options import SHARED_OPTIONS, Options
from hark.model.errors import HarkError
from hark.model.version import VERSION

_VERSION = inspect.Parameter(
    "version",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--version", help="Print the version and exit")],
)


def group(help: str, *, root: bool = False) -> typer.Typer:
    """Make a group of commands. Without a command it prints its help."""
    made = typer.Typer(
        help=help,
        cls=Root if root else Group,
        rich_markup_mode=None,  # help.py decides: rich would double the start-up time
        add_completion=root,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def callback(ctx: typer.Context, version: bool = False, **values: Any) -> None:
        if version:
            print(f"hark {VERSION}")
            raise typer.Exit
        ctx.obj = Options(**values).override(ctx.obj)
        if ctx.invoked_subcommand is None:
            print(ctx.get_help())
            raise typer.Exit(2)

    made.callback(invoke_without_command=True, help=help)(_with_options(callback, [_VERSION] if root else []))
    return made


def command(
    to: typer.Typer, name: str | None = None, *, store_only: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function to a group as a command.

    The function is called with an `Options` as `options`, and its own arguments by name. Its docstring is the help:
    what it does, then an example on a line that begins with `hark`. If it is `store_only`, it cannot work through a
    server: --server is still read, to be refused with a reason, but the help does not offer it.
    """

    def declare(function: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(function).parameters.values()
            if parameter.name != "options"
        ]

        def run(ctx: typer.Context, **values: Any) -> None:
            options = Options(**{option: values.pop(option) for option in SHARED_OPTIONS}).override(ctx.obj)
            try:
                try:
                    function(options, **values)
                finally:
                    sys.stdout.flush()
            except HarkError as error:
                error.args = (options.add_to_commands(str(error)), *error.args[1:])
                raise
            except BrokenPipeError:
                # `hark events | head`: the reader has closed the pipe. Python must not flush into it at exit.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(141) from None

        # \b: the example is not wrapped.
        help = (inspect.getdoc(function) or "").replace("\n\nhark ", "\n\n\b\nExample:\n  hark ")
        to.command(name or function.__name__, help=help, cls=StoreCommand if store_only else Command)(
            _with_options(run, own)
        )
        return function

    return declare


def _with_options(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> Any:
    """Give a function a signature of these parameters and the shared options: typer reads the signature."""
    every = [*parameters, *_shared_parameters()]
    function.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
    return function


def _shared_parameters() -> list[inspect.Parameter]:
    ctx = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    return [ctx] + [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if name == "json" else None, annotation=annotation
        )
        for name, annotation in SHARED_OPTIONS.items()
    ]
