"""Option types, and options that several commands share.

Paths are declared with readable=False: click's own check would fail first, with a message that names no command to
fix it.
"""

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from blkreel.common.errors import UsageError
from blkreel.common.printable import printable
from blkreel.common.units import parse_size_bytes, parse_time_ns

NOT_TRUSTWORTHY = 3  # exit code
INTERRUPTED = 130  # exit code
CommandFunction = Callable[..., Any]


class _Unit(click.ParamType):  # type: ignore[type-arg]
    def __init__(self, name: str, parse: Callable[[str], int], least: int = 0):
        self.name, self._parse, self._least = name, parse, least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            number = self._parse(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)
        if number < self._least:
            self.fail(f"{value!r} is too short" if self.name == "time" else f"{value!r} is too small", param, ctx)
        return number


class _Label(click.ParamType):  # type: ignore[type-arg]
    """Words of a label, as results have and print it: with bytes that are not UTF-8 as escapes."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return printable(value)


class OutputPath(click.Path):
    """The argument of -o. `-` is refused: stdout has the summary, and a trace needs a file to seek in."""

    def __init__(self, path_type: type = Path, **settings: Any):
        super().__init__(readable=False, path_type=path_type, **settings)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "-":
            raise UsageError("-o -: no output goes to stdout by -o",
                             "name a file; --json prints a document on stdout, and so does --format of a report")
        return super().convert(value, param, ctx)


class _Share(click.ParamType):  # type: ignore[type-arg]
    """A percentage as a share from 0 to 1."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            percent = float(value.removesuffix("%"))
        except ValueError:
            percent = -1.0
        if not 0 <= percent <= 100:
            self.fail(f"{value!r} is not a percentage; write it as 5%", param, ctx)
        return percent / 100


class SectionedCommand(click.Command):
    """Its --help lists the options of `common` (names of parameters) first, the others below `More options`: those
    whose default suits nearly everyone."""

    def __init__(self, *arguments: Any, common: Sequence[str], **settings: Any):
        super().__init__(*arguments, **settings)
        self._common = common

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = [(parameter.name in self._common or "--help" in parameter.opts, record)
                   for parameter in self.get_params(ctx)
                   if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx))]
        for title, is_common in (("Options", True), ("More options", False)):
            with formatter.section(title):
                formatter.write_dl([record for common, record in records if common is is_common])


OUTPUT = OutputPath()
LABEL = _Label()
SHARE = _Share()
SIZE_BYTES = _Unit("size", parse_size_bytes)
PATH = click.Path(readable=False, path_type=Path)
TIME_NS = _Unit("time", parse_time_ns)
DURATION_NS = _Unit("time", parse_time_ns, least=1)
DEVICE_BYTES = _Unit("size", parse_size_bytes, least=4096)
WORKLOAD_ONLY = "Only workload I/O: that of the captured command, process or control group."  # help


def force(function: CommandFunction) -> CommandFunction:
    """--force. An output that an argument or --background names is refused: nothing would be left of a recording."""
    @functools.wraps(function)
    def checked(*arguments: Any, **values: Any) -> Any:
        output = Path(values.get("output") or "")
        if values["force"] and values.get("output") and output.exists():
            named = [values.get(parameter.name or "") for parameter in click.get_current_context().command.params
                     if isinstance(parameter, click.Argument) and parameter.name != "output"]
            inputs = [path for value in named for path in (value if isinstance(value, tuple) else (value,))]
            inputs += [text.partition(",")[0] for text in values.get("backgrounds") or () if isinstance(text, str)]
            if any(path is not None and _is_of(output, Path(str(path))) for path in inputs):
                raise UsageError(f"{output} is an input of this command, and --force would destroy it",
                                 "name another output")
        return function(*arguments, **values)

    return click.option("--force", is_flag=True, help="Overwrite an existing output.")(checked)


def _is_of(output: Path, path: Path) -> bool:
    """Whether the output is this file or run, or one is a file of the run or the test that the other one is."""
    from blkreel.traces.format.reader import RUN_RECORDS, TEST

    with suppress(OSError, ValueError):  # no file, such as a word of the command that is captured
        pairs = ((output, path), (path, output))
        return output.samefile(path) or any(
            part.name in (RUN_RECORDS, TEST) and part.is_file() and whole.resolve() in part.resolve().parents
            for part, whole in pairs)
    return False


public = click.option("--public", is_flag=True,
                      help="Let other users read the output. Traces name programs and commands, unless anonymized.")
trace_output = click.option("-o", "--output", required=True, type=OUTPUT, help="Trace to write.")
destroy = click.option("--destroy", metavar="SERIAL",
                       help="Serial number of the drive: confirms that its data is destroyed.")
seed = click.option("--seed", type=click.IntRange(0), metavar="N", default=1, show_default=True,
                    help="Seed of the written data and of the random order.")
dry_run = click.option("--dry-run", is_flag=True, help="Print the steps and exit without I/O.")
drives = click.option("--drives", type=PATH, metavar="FILE",
                      help="Read drive class, flash type, price, predecessor and rivals from this TOML file "
                           "(docs/reports.md).")
theme = click.option("--theme", type=PATH, metavar="FILE",
                     help="Read colors, font and logo from this TOML file (docs/reports.md).")
no_live = click.option("--no-live", is_flag=True, help="Show progress in one line.")
allow_simulated = click.option("--allow-simulated", is_flag=True,
                               help="Decide on simulated drives too, to rehearse without drives.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
_percent = click.IntRange(0, 100)
_compressible = click.option("--compressible", type=_percent, default=0, show_default=True, metavar="PERCENT",
                             help="Compressibility of written data, in percent.")
_duplicates = click.option("--duplicates", type=_percent, default=0, show_default=True, metavar="PERCENT",
                           help="Duplicate 4K blocks in written data, in percent.")


def payload(command: CommandFunction) -> CommandFunction:
    """Add the options for the content of written data."""
    return _compressible(_duplicates(command))


def add_options(command: CommandFunction, options: Sequence[Callable[[Any], Any]]) -> CommandFunction:
    """Decorate a command; --help lists the options in this order."""
    for option in reversed(options):
        command = option(command)
    return command


# Of the commands that make one trace of several.
onto = click.option("--onto", type=click.Choice(("separate", "one")), default="separate", show_default=True,
                    help="separate: each trace keeps its devices. one: all I/Os on one device, at their offsets.")


KEY = "blkreel.command"  # of Context.meta: the words after `--`


class CommandAfterDashes(click.Command):
    """Takes everything after `--` as the command to run, with its options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[KEY] = []
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[KEY] = args[:at], args[at + 1:]
            if not ctx.meta[KEY]:
                raise click.UsageError("no command after --", ctx)
        elif not ctx.resilient_parsing:
            self.refuse_missing_dashes(ctx, args)
        return super().parse_args(ctx, args)

    def refuse_missing_dashes(self, ctx: click.Context, args: list[str]) -> None:
        """Raise UsageError for a command without `--` before it."""
