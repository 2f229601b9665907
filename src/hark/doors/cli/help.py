"""The classes of commands and groups, and how their `--help` looks.

It is drawn in colored panels on a terminal and plain elsewhere; options are in groups, the shared ones last. On a
terminal typer draws it with rich. Plain help is written here, because typer's has no groups and cuts summaries.
"""

import os
import sys
from typing import Any

from typer.core import TyperCommand, TyperGroup

from hark.doors.cli.usage_errors import usage_errors_of

OTHER_OPTIONS = "Store, server and output"
"""The group of the options that every command has."""
_TASKS = {
    "Begin": ("init", "demo"),
    "Run": ("serve", "worker", "migrate"),
    "Start and signal": ("start", "result", "signal", "broadcast", "message", "schedule"),
    "Look and answer": ("job", "bpmn", "instance", "awakeable", "events", "workers"),
    "Deploy": ("check", "export", "definition"),
    "Operate": ("doctor", "token", "secret", "timeout"),
}
"""The commands of `hark` by what people want to do; one that is not listed is in the last group."""


class Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with usage_errors_of(ctx):
            return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _choose_style(self, ctx)
        super().format_help(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self, ctx, formatter)


class StoreCommand(Command):
    """A command that does not work through a server: its help leaves out --server and --token."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)
        for parameter in parameters:
            parameter.hidden = parameter.hidden or parameter.name in ("server", "token")
        return parameters


class Group(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with usage_errors_of(ctx):
            return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _choose_style(self, ctx)
        super().format_help(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.format_commands(ctx, formatter)
        _write_options(self, ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.commands[name]
            summary = command.get_short_help_str(limit=10_000)
            sections.setdefault(getattr(command, "rich_help_panel", None) or "Commands", []).append((name, summary))
        _write_sections(formatter, sections)


class Root(Group):
    """`hark` itself: its commands are grouped by task."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)
        for parameter in parameters:
            parameter.hidden = parameter.name == "show_completion"  # --install-completion does what people want
        return parameters

    def list_commands(self, ctx: Any) -> list[str]:
        order = [name for names in _TASKS.values() for name in names]
        names = sorted(self.commands, key=lambda name: order.index(name) if name in order else len(order))
        for name in names:
            tasks = [task for task, members in _TASKS.items() if name in members]
            self.commands[name].rich_help_panel = tasks[0] if tasks else [*_TASKS][-1]  # type: ignore[attr-defined]
        return names


def on_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _choose_style(command: TyperCommand | TyperGroup, ctx: Any) -> None:
    if on_terminal():
        command.rich_markup_mode = "rich"
        for parameter in command.get_params(ctx):
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""  # typer writes <bool>, as if a flag took a value
        command.help = (command.help or "").replace("\b\n", "")  # means "do not wrap" in plain help only
    else:
        command.rich_markup_mode = None


def _write_options(command: TyperCommand | TyperGroup, ctx: Any, formatter: Any) -> None:
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        default = "Arguments" if parameter.param_type_name == "argument" else "Options"
        if record := parameter.get_help_record(ctx):
            sections.setdefault(getattr(parameter, "rich_help_panel", None) or default, []).append(record)
    order = ["Arguments", "Options", *sections]
    _write_sections(formatter, dict(sorted(sections.items(), key=lambda item: order.index(item[0]))))


def _write_sections(formatter: Any, sections: dict[str, list[tuple[str, str]]]) -> None:
    for title, rows in sections.items():
        with formatter.section(title):
            formatter.write_dl(rows)
