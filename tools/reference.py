"""Describes every command and option from its declaration, for a page and for the manual page of ``man``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any

import typer

from toolkit.base.errors import list_exit_codes
from toolkit.cli import app
from toolkit.cli.command import OUTPUT, SETTINGS
from toolkit.cli.help import describe_parameter

SHARED = {"Settings": SETTINGS, "Output": OUTPUT}
"""Options that many commands have, which are described once."""


@dataclass(frozen=True)
class Parameter:
    """An argument or an option: how it is written, its default, and what it means."""

    name: str
    written: str
    default: str
    help: str


@dataclass(frozen=True)
class Command:
    """A command: the words that call it, what it does, and its parameters."""

    name: str
    usage: str
    short: str
    help: str
    parameters: tuple[Parameter, ...]

    @property
    def own(self) -> tuple[Parameter, ...]:
        """Return the parameters that are of this command alone."""
        shared = {name for options in SHARED.values() for name in options}
        return tuple(each for each in self.parameters if each.name not in shared)

    def list_shared(self, panel: str) -> list[Parameter]:
        return [each for each in self.parameters if each.name in SHARED[panel]]


def read_commands(program: typer.Typer = app, name: str = "toolkit") -> list[Command]:
    """Return the commands of a program, its groups among them, in the order of its help."""
    return list(_walk(typer.main.get_command(program), name, None))


def _walk(command: Any, name: str, parent: Any) -> Iterator[Command]:
    context = (type(parent) if parent else typer.Context)(command, info_name=name, parent=parent)
    words = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parameters = tuple(_describe(each, context) for each in command.params if not getattr(each, "hidden", False))
    text = cleandoc(command.help or "")
    yield Command(context.command_path, words, command.short_help or text.partition("\n")[0], text, parameters)
    for part, below in getattr(command, "commands", {}).items():
        if below.hidden:
            continue
        yield from _walk(below, part, context)


def _describe(parameter: Any, context: Any) -> Parameter:
    described = describe_parameter(parameter, context)
    if described is None:
        raise ValueError(f"{parameter.name} is hidden")
    written, text = described
    meaning, _, extra = text.partition(" [")
    facts = extra.removesuffix("]").split("; ")
    is_switch = getattr(parameter, "is_flag", False) and not parameter.secondary_opts  # off unless it is given
    default = "required" if "required" in facts else "" if is_switch else name_default(parameter.default)
    bounds = [f"{fact[0].upper()}{fact[1:]}." for fact in facts if re.match(r"at least |\d+ to \d+", fact)]
    return Parameter(parameter.name, written, default, " ".join([meaning, *bounds]))


def name_default(value: object) -> str:
    """Return a default as the pages show it; empty if there is none."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value in (None, "", ()) else f"`{value}`"


def render_page() -> str:
    """Return the commands in Markdown: a list, each command with its own options, and those of many commands."""
    program, *commands = read_commands()
    lines = ["| command | does |", "|---|---|"]
    lines += [f"| [{each.name}](#{each.name.replace(' ', '-')}) | {each.short} |" for each in commands]
    for command in commands:
        settings = ", ".join(f"`{each.written.split()[0]}`" for each in command.list_shared("Settings"))
        lines += ["", f"## {command.name}", "", "```", command.usage, "```", "", command.help]
        lines += ["", *tabulate(command.own)] if command.own else []
        lines += ["", f"[Settings](#settings): {settings}."] if settings else []
    for panel in SHARED:
        lines += ["", f"## {panel}", "", *tabulate(_list_shared(commands, panel))]
    lines += ["", "## The program itself", "", *tabulate(program.parameters)]
    return "\n".join(lines)


def _list_shared(commands: list[Command], panel: str) -> list[Parameter]:
    found = {each.name: each for command in commands for each in command.list_shared(panel)}
    return [found[name] for name in SHARED[panel]]


def tabulate(parameters: Sequence[Parameter], **more: Sequence[str]) -> list[str]:
    """Return the lines of a table of parameters; `more`: further columns by their names."""
    rows = [(f"`{each.written}`".replace("|", "\\|"), each.default) for each in parameters]
    columns = zip(*more.values(), strict=True) if more else [()] * len(rows)
    lines = [" | ".join([*row, *extra, each.help]) for row, extra, each in zip(rows, columns, parameters, strict=True)]
    return [
        f"| {' | '.join(['option', 'default', *more, 'meaning'])} |",
        "|---" * (3 + len(more)) + "|",
        *(f"| {line} |" for line in lines),
    ]


def render_manual(job: Mapping[str, Sequence[Parameter]]) -> str:
    """Return the manual page, in the language of ``man``; ``job``: the options of the training job by panel."""
    program, *commands = read_commands()
    lines = [".TH TOOLKIT 1", ".SH NAME", rf"toolkit \- {escape(program.help.rstrip('.'))}"]
    lines += [".SH SYNOPSIS", rf"\fB{escape(program.usage)}\fR", ".SH OPTIONS", *_list(program.parameters)]
    lines += [".SH COMMANDS"]
    for command in commands:
        settings = [each.written.split()[0] for each in command.list_shared("Settings")]
        lines += [f'.SS "{escape(command.name)}"', rf"\fB{escape(command.usage)}\fR", *_write(command.help)]
        lines += _list(command.own)
        lines += [".PP", escape(f"Settings: {', '.join(settings)}.")] if settings else []
    for panel in SHARED:
        lines += [f'.SH "{panel.upper()} OF COMMANDS"', *_list(_list_shared(commands, panel))]
    lines += ['.SH "OPTIONS OF THE TRAINING JOB"']
    for panel, options in job.items():
        lines += [f'.SS "{panel}"', *_list(options)]
    codes = [Parameter("", str(code), "", meaning) for code, meaning in sorted(list_exit_codes().items())]
    lines += [".SH EXIT STATUS", *_list(codes)]
    return "\n".join(lines) + "\n"


def _list(parameters: Sequence[Parameter]) -> Iterator[str]:
    for each in parameters:
        default = {"": "", "required": " Required."}.get(each.default, f" Default: {each.default.strip('`')}.")
        yield from (".TP", rf"\fB{escape(each.written)}\fR", escape(each.help + default) or r"\&")


def _write(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        yield from (".PP", escape(" ".join(paragraph.split())))


def escape(text: str) -> str:
    """Return text that `man` shows as it is."""
    safe = text.replace("\\", r"\e").replace("-", r"\-").replace("`", "").replace("…", "...")
    return rf"\&{safe}" if safe.startswith((".", "'")) else safe
