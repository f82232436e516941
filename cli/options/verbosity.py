"""-q and -v, which every command has."""

import functools
import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from typing import Any

import click
from click.core import ParameterSource

from blkreel import __version__
from blkreel.common.errors import UsageError

_OPTIONS = (
    click.Option(["-q", "--quiet"], is_flag=True, help="Print errors only."),
    click.Option(["-v", "--verbose"], is_flag=True,
                 help="Print options in effect, time and memory on stderr, and causes of disturbances."),
)


def add_verbosity(command: click.Command) -> click.Command:
    """Add -q and -v to a command, once. -q keeps errors, raised as exceptions, and --json."""
    if _OPTIONS[0] not in command.params:
        assert command.callback
        command.params += _OPTIONS
        command.callback = _with_verbosity(command.callback)
    return command


def _with_verbosity(callback: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(callback)
    def with_verbosity(*arguments: Any, quiet: bool, verbose: bool, **parameters: Any) -> Any:
        if quiet and verbose:
            raise UsageError("-q and -v exclude each other", "leave out one of them")
        if verbose:
            return _explained(callback, *arguments, **parameters)
        if not quiet:
            return callback(*arguments, **parameters)
        with (open(os.devnull, "w") as nowhere, redirect_stderr(nowhere),
              nullcontext() if parameters.get("as_json") else redirect_stdout(nowhere)):
            return callback(*arguments, **parameters)

    return with_verbosity


def _explained(callback: Callable[..., Any], *arguments: Any, **parameters: Any) -> Any:
    """Call a command; print its options before, and what it used after."""
    from blkreel.common.console import notice  # imports rich, for which `--help` must not wait

    begin_s = time.monotonic()
    explicit, defaults = _options(click.get_current_context())
    notice(f"version {__version__}, Python {sys.version.partition(' ')[0]}, kernel {os.uname().release}")
    notice(f"options: {explicit or 'none'}; defaults: {defaults or 'none'}")
    try:
        return callback(*arguments, **parameters)
    finally:
        own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        notice(f"elapsed {time.monotonic() - begin_s:.2f} s, CPU {own.ru_utime + own.ru_stime:.2f} s and "
               f"{children.ru_utime + children.ru_stime:.2f} s in child processes, peak memory "
               f"{own.ru_maxrss // 1024} MiB")


def _options(context: click.Context) -> tuple[str, str]:
    """(arguments and options that the user gave, options with their defaults)."""
    explicit: list[str] = []
    defaults: list[str] = []
    for parameter in context.command.params:
        if parameter in _OPTIONS:
            continue
        value = context.params.get(str(parameter.name))
        if value in (None, False, ()):
            continue
        is_default = context.get_parameter_source(str(parameter.name)) is ParameterSource.DEFAULT
        name = max(parameter.opts, key=len) if isinstance(parameter, click.Option) else ""
        values = value if isinstance(value, tuple | list) else [value]
        words = [name] if value is True else [f"{name} {_text(element, parameter.type)}".lstrip() for element in values]
        (defaults if is_default else explicit).extend(words)
    return " ".join(explicit), " ".join(defaults)


def _text(value: Any, kind: click.ParamType) -> str:  # type: ignore[type-arg]
    from blkreel.common.units import format_bytes, format_ns

    if isinstance(value, int) and kind.name in ("time", "size"):
        return (format_ns if kind.name == "time" else format_bytes)(value)
    return str(value)
