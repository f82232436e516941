"""Options that set how much a command prints: --why and --all. -q and -v: verbosity.py."""

import functools
from collections.abc import Callable
from typing import Any

import click

from blkreel.common.console import Detail

from .types import CommandFunction, add_options

_OPTIONS = {
    "why": click.option("--why", is_flag=True, help="List the reasons of each verdict."),
    "everything": click.option("--all", "everything", is_flag=True, help="Print all rows and columns."),
}


def detail_options(*names: str) -> Callable[[CommandFunction], CommandFunction]:
    """Add options of _OPTIONS; the command gets them as one argument `detail`, a Detail."""
    def decorate(command: CommandFunction) -> CommandFunction:
        @functools.wraps(command)
        def with_detail(*arguments: Any, **parameters: Any) -> Any:
            verbose = click.get_current_context().params["verbose"]
            detail = Detail(verbose, **{name: parameters.pop(name) for name in names})
            return command(*arguments, detail=detail, **parameters)

        return add_options(with_detail, [_OPTIONS[name] for name in names])

    return decorate
