"""Groups of commands: their tables, and a group that imports a command when it is called."""

import sys
from importlib import import_module
from keyword import iskeyword
from typing import Any

import click
from click.shell_completion import CompletionItem

from blkreel.cli.options.verbosity import add_verbosity
from blkreel.common.errors import UsageError
from blkreel.common.suggestions import did_you_mean

# Here, not in the modules: `blkreel --help` must not wait for pandas and the chart library.
COMMANDS = {
    "capture": "Record the I/O of a drive into a trace.",
    "top": "Show current I/O of drives and processes.",
    "import": "Convert a recording of another tool to a trace.",
    "export": "Convert a trace to the format of another tool.",
    "slice": "Extract I/Os from a trace by time, process or range.",
    "concat": "Join traces into one, end to end.",
    "merge": "Combine traces that run at the same time.",
    "anonymize": "Remove names from a trace, to share it.",
    "model": "Fit a synthetic workload to a trace.",
    "precondition": "Put a drive into a known state.",
    "replay": "Replay a trace on a drive.",
    "test": "Run a published benchmark on a drive.",
    "power": "Add a power-meter log to a finished run or test.",
    "report": "Show one trace, run or test as a table and a page.",
    "compare": "Compare runs of several drives as a table and a page.",
    "results": "Keep results in a catalog.",
    "model-drive": "Fit a simulated drive to runs of a real one.",
    "predict": "Predict load time and read p99 on fitted drives.",
    "info": "Show a summary of a trace.",
    "check": "Verify that a trace is complete and valid.",
    "recover": "Complete a trace after a crash.",
    "samples": "List the sample traces.",
    "drives": "List drives, their users and their state.",
    "doctor": "Check requirements and suggest fixes.",
    "demo": "Run the whole workflow on scratch drives.",
}
GROUPS = {
    "results": {
        "add": "Add runs and tests to a catalog.",
        "list": "List the results of a catalog.",
        "show": "Show one result of a catalog.",
        "remove": "Remove results from a catalog.",
        "history": "Find changes of a metric over dates, firmware or kernels.",
        "site": "Make a static site of a catalog.",
        "verify": "Check the files of a catalog and recompute its metrics.",
    },
}


def all_commands() -> dict[str, str]:
    """Each command and its summary. A command of a group is named with it: `results add`."""
    commands: dict[str, str] = {}
    for name, about in COMMANDS.items():
        if name in GROUPS:
            commands |= {f"{name} {own}": text for own, text in GROUPS[name].items()}
        else:
            commands[name] = about
    return commands


def find_command(name: str) -> click.Command:
    """A command of all_commands(), imported, with -q and -v."""
    folder, _, file = name.replace("-", "_").rpartition(" ")
    module = ".".join(filter(None, ("blkreel.cli.commands", folder, f"{file}_" if iskeyword(file) else file)))
    command: click.Command = import_module(module).command
    return add_verbosity(command)


class PipeClosed(Exception):
    """The reader of stdout has exited. Not an OSError: click exits with 1 for a broken pipe."""


class LazyGroup(click.Group):
    """Imports a command when it is called. parent: name of the group; empty for all commands."""

    parent = ""

    @property
    def _table(self) -> dict[str, str]:
        return GROUPS[self.parent] if self.parent else COMMANDS

    def _full_name(self, name: str) -> str:
        return f"{self.parent} {name}".lstrip()

    def make_context(self, *arguments: Any, **others: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **others)
        except BrokenPipeError as error:
            raise PipeClosed from error

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            exit_code = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()  # when Python exits it is too late for an exit code
            return exit_code
        except BrokenPipeError as error:
            raise PipeClosed from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        if not self.parent and cmd_name in GROUPS:
            group: click.Command = import_module(f"blkreel.cli.commands.{cmd_name}").command
            return group
        if ctx.resilient_parsing:  # completes a line
            from blkreel.cli.options.completion_table import stored_command

            return stored_command(self._full_name(cmd_name))
        return find_command(self._full_name(cmd_name))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Without importing any subcommand."""
        names = [CompletionItem(name, help=about) for name, about in self._table.items()
                 if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(self, ctx: click.Context,
                        args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self._table and not ctx.resilient_parsing:
            raise UsageError(f"no such command: {self._full_name(args[0])!r}",
                             did_you_mean(args[0], self._table, f"list the commands: {ctx.command_path} --help"))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._table.items()))
