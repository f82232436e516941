"""What completion needs of the subcommands: a table that is built once for an installation and stored.

Importing a subcommand takes up to a second, of numpy, pyarrow and the chart library. With the table a key press
imports neither a subcommand nor what its values are read from.
"""

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

import click

from blkreel import __version__
from blkreel.cli.command_table import all_commands
from blkreel.common.files.typed_document import read_json
from blkreel.common.system import user_directory

Table = dict[str, Any]
_Values = list[list[str]]


class _Option(TypedDict):
    is_flag: bool
    multiple: bool
    help: str | None


class _Parameter(TypedDict):
    name: str | None
    opts: list[str]
    nargs: int
    complete: str | None
    choices: list[str] | None
    path: list[bool] | None
    option: _Option | None


class _StoredValues(TypedDict):
    samples: _Values
    states: _Values
    benchmarks: _Values
    parameters: dict[str, _Values]
    metrics: _Values


class _Stored(TypedDict):
    key: list[str | int]
    commands: dict[str, list[_Parameter]]
    values: _StoredValues


@cache
def table() -> Table:
    """`commands`: name -> parameters. `values`: what of completion.py -> [value, description]. Built if it is not
    stored, or is of another installation."""
    path = user_directory("XDG_CACHE_HOME", ".cache") / "blkreel/completion.json"
    key = [__version__, Path(__file__).stat().st_ctime_ns]
    with suppress(OSError, ValueError):
        stored = read_json(path, _Stored)
        if stored["key"] == key and stored["commands"].keys() == all_commands().keys():
            return {**stored}
    built = {"key": key, "commands": _commands(), "values": _values()}
    _store(path, built)
    return built


def _store(path: Path, built: Table) -> None:
    from blkreel.common.errors import BlkreelError
    from blkreel.common.files.json_file import write_json

    with suppress(OSError, BlkreelError):  # without a home, each completion builds it
        write_json(path, built, indent=None)


def _commands() -> Table:
    from blkreel.cli.command_table import find_command

    return {name: [_stored(parameter) for parameter in find_command(name).params
                   if not getattr(parameter, "hidden", False)] for name in all_commands()}


def _stored(parameter: click.Parameter) -> Table:
    kind, complete = parameter.type, parameter._custom_shell_complete
    names = list(parameter.opts)
    if parameter.secondary_opts:
        names[-1] += f"/{parameter.secondary_opts[-1]}"
    return {"name": parameter.name, "opts": names, "nargs": parameter.nargs, "complete": complete and complete.__name__,
            "choices": list(kind.choices) if isinstance(kind, click.Choice) else None,
            "path": [kind.file_okay, kind.dir_okay] if isinstance(kind, click.Path) else None,
            "option": {"is_flag": parameter.is_flag, "multiple": parameter.multiple, "help": parameter.help}
            if isinstance(parameter, click.Option) else None}


def _values() -> Table:
    from blkreel.analysis.metrics.definitions.headline import RELATIVE_PERFORMANCE
    from blkreel.analysis.metrics.definitions.registry import METRICS
    from blkreel.benchmarks.recipe.recipe import load_recipe, recipe_names
    from blkreel.replay.prepare.states import STATES
    from blkreel.traces.samples import PREFIX, SAMPLES

    recipes = {name: load_recipe(name) for name in recipe_names()}
    return {"samples": [(f"{PREFIX}{name}", about) for name, about in SAMPLES.items()],
            "states": list(STATES.items()),
            "benchmarks": [(name, recipe.title) for name, recipe in recipes.items()],
            "parameters": {name: [(f"{key}=", parameter.about) for key, parameter in recipe.parameters.items()]
                           for name, recipe in recipes.items()},
            "metrics": [*((key, metric.title) for key, metric in METRICS.items()),
                        (RELATIVE_PERFORMANCE, "Relative performance over workloads")]}
