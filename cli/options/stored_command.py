"""A subcommand made from the stored table of completion, to complete its line without importing it."""

from collections.abc import Mapping
from typing import Any

import click

from . import completion
from .completion_table import table


def stored_command(name: str) -> click.Command:
    """A command with the parameters of a subcommand, to complete its line."""
    return click.Command(name, params=list(map(_parameter, table()["commands"][name])))


def _parameter(stored: Mapping[str, Any]) -> click.Parameter:
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
