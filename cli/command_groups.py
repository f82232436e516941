"""A group of commands that imports a command when it is called."""

import gc
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from blkreel.common.errors import UsageError, did_you_mean

from .command_table import COMMANDS, GROUPS, find_command


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

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **extra)
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
            return stored_command(self._full_name(cmd_name))
        command = find_command(self._full_name(cmd_name))
        if not gc.isenabled():
            gc.freeze()  # what was loaded lives until the end
            gc.enable()
        return command

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


def stored_command(name: str) -> click.Command:
    """A command with the parameters of a subcommand, to complete its line without importing it."""
    from blkreel.cli.options.completion_table import table

    return click.Command(name, params=list(map(_parameter, table()["commands"][name])))


def _parameter(stored: Mapping[str, Any]) -> click.Parameter:
    from blkreel.cli.options import completion

    kind: click.ParamType | None = None  # type: ignore[type-arg]
    if stored["choices"]:
        kind = click.Choice(stored["choices"])
    elif stored["path"]:
        kind = click.Path(file_okay=stored["path"][0], dir_okay=stored["path"][1])
    complete = stored["complete"] and getattr(completion, stored["complete"])
    if stored["option"] is None:
        return click.Argument([stored["name"]], nargs=stored["nargs"], required=False, type=kind,
                              shell_complete=complete)
    return click.Option([*stored["opts"], stored["name"]], type=None if stored["option"]["is_flag"] else kind,
                        shell_complete=complete, **stored["option"])
