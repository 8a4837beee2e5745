"""Shows the help of commands: their groups, examples, and the options that many commands share under one heading.

Typer groups commands and options only in its coloured help, which takes longer to load than everything else together.
The declarations use Typer's own name for a group all the same: ``rich_help_panel``.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import typer
import typer.core

SHARED_PANEL: Final = "Options of many commands"

USUAL: Final = (
    "epochs",
    "model",
    "recipe",
    "batch_size",
    "image_size",
    "init_from",
    "learning_rate",
    "seed",
    "data_dir",
    "out",
)
"""The options of the job that most runs are given. The help of commands that start the job shows them."""

USAGE: Final = 2
"""The exit code of a wrong command line."""

TYPES: Final = {"int": "N", "int range": "N", "float": "X", "float range": "X", "str": "TEXT", "path": "PATH"}
"""The help's name for each of Typer's types. It is used where the declaration of an option has no name of its own."""


def describe_parameter(parameter: Any, context: Any) -> tuple[str, str] | None:
    """Return how a parameter is written, and what it means with default and bounds; None for a hidden one.

    Names of types are left out for arguments, and replaced by the usual capitals for options: ``--jobs N``.
    """
    record = parameter.get_help_record(context)
    if record is None:
        return None
    written, text = record
    if kind := re.search(r" <(.+)>$", written):
        name = TYPES.get(kind[1], kind[1]) if parameter.param_type_name == "option" else ""
        written = f"{written.removesuffix(kind[0])} {name}".rstrip()
    if parameter.param_type_name == "argument":
        written = parameter.metavar or written.upper()
    meaning, _, extra = text.partition("  [")
    facts = [word for fact in extra.removesuffix("]").split("; ") if (word := _describe_fact(fact))]
    return written, f"{meaning} [{'; '.join(facts)}]" if facts else meaning


def _describe_fact(fact: str) -> str:
    """Return a default or a bound in words. That a number is not negative goes without saying."""
    if bounds := re.fullmatch(r"(\d+)<=x(?:<=(\d+))?|x>=(\d+)", fact):
        least, most = bounds[1] or bounds[3], bounds[2]
        return f"{least} to {most}" if most else f"at least {least}" if least != "0" else ""
    return fact


class Command(typer.core.TyperCommand):
    """A command whose help has examples, and a heading of its own for the options of many commands."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line. Arguments are in capitals; brackets say that one may be left out."""
        return [_capitalize(piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, the arguments, and the options by their headings."""
        _write(formatter, "Examples", read_examples().get(ctx.command_path.partition(" ")[2], {}).items())
        by_heading: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if record := describe_parameter(parameter, ctx):
                kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
                heading = getattr(parameter, "rich_help_panel", None) or kind
                heading = SHARED_PANEL if parameter.name == "help" else heading
                by_heading.setdefault(heading, []).append(record)
        shared = by_heading.pop(SHARED_PANEL, [])
        for heading, records in by_heading.items():
            _write(formatter, heading, records)
        self.format_more(formatter)
        _write(formatter, SHARED_PANEL, shared)

    def format_more(self, formatter: Any) -> None:
        """Write what stands between a command's own options and those of many commands."""


_SCHEDULER = "toolkit.scheduler"


class JobCommand(Command):
    """A command that passes options on to the training job."""

    def format_more(self, formatter: Any) -> None:
        """Write the options of the job that most runs are given."""
        job = _load_job()
        context = typer.Context(job, info_name="train")
        by_name = {parameter.name: parameter for parameter in job.params}
        records = [record for name in USUAL if (record := describe_parameter(by_name[name], context))]
        _write(formatter, "Options of the job, those that most runs are given", records)
        with formatter.indentation():
            formatter.write_text(f"All {len(by_name)}: docs/options.md, or `python -m train --help`.")

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return what the words may go on with: names of the job's options too, or values of the last one."""
        job = _load_job()
        for option in job.params:
            if ctx.args and ctx.args[-1] in option.opts and not getattr(option, "is_flag", False):
                return option.shell_complete(ctx, incomplete)
        completions = super().shell_complete(ctx, incomplete)
        known = {completion.value for completion in completions}
        job_completions = job.shell_complete(ctx, incomplete)
        return [*completions, *(completion for completion in job_completions if completion.value not in known)]


class SchedulerCommand(JobCommand):
    """A command that passes on options to the job, and what stands after ``--`` to the scheduler."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Keep the words after ``--``, which are none of the job."""
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[_SCHEDULER] = tuple(args[place + 1 :])
        return super().parse_args(ctx, args[:place])


def read_scheduler_options(context: typer.Context) -> tuple[str, ...]:
    """Return the words after ``--`` of a :class:`SchedulerCommand`."""
    return tuple(context.meta[_SCHEDULER])


class Group(typer.core.TyperGroup):
    """Commands, which the help shows by the group that each belongs to."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Show the help, and end as for any wrong usage, if no command is named."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(USAGE)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write examples, and the commands under the headings of their groups."""
        name = ctx.command_path.partition(" ")[2]
        _write(formatter, "Examples" if name else "Start here", read_examples().get(name, {}).items())
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command and not command.hidden:
                heading = getattr(command, "rich_help_panel", None) or "Commands"
                groups.setdefault(heading, []).append((name, command.get_short_help_str(formatter.width)))
        for heading, rows in groups.items():
            _write(formatter, heading, rows)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands first, and the few options of the program after them."""
        self.format_commands(ctx, formatter)
        records = (describe_parameter(parameter, ctx) for parameter in self.get_params(ctx))
        _write(formatter, "Options", [record for record in records if record])


def read_examples() -> Mapping[str, Mapping[str, str]]:
    """Return the examples of each command: command lines, and what each does. The program itself is an empty text."""
    from importlib import resources

    import yaml  # only help needs it

    examples: Mapping[str, Mapping[str, str]] = yaml.safe_load(
        resources.files("toolkit.cli").joinpath("examples.yaml").read_text("utf-8")
    )
    return examples


def _load_job() -> Any:
    from train.command_line import app  # only help and completion need it

    return typer.main.get_command(app)


def _capitalize(piece: str) -> str:
    """Return a word of a usage line without Typer's braces: ``{target}`` is TARGET, ``[name]`` is [NAME]."""
    if required := re.fullmatch(r"\{(.+)\}(\.\.\.)?", piece):
        return f"{required[1]}{'' if required[1].endswith('...') else required[2] or ''}".upper()
    return piece.upper() if re.fullmatch(r"\[[a-z_]+\](\.\.\.)?", piece) else piece


def _write(formatter: Any, heading: str, rows: Iterable[tuple[str, str]]) -> None:
    if rows := list(rows):
        with formatter.section(heading):
            formatter.write_dl(rows)
