"""What the command prints when it fails: one line on stderr, and with --json a document on stdout."""

import errno
import json
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from blkreel import __version__
from blkreel.common.command_line import as_typed
from blkreel.common.errors import BlkreelError, did_you_mean
from blkreel.common.limits import limit_reached
from blkreel.common.printable import printable, within_sentence


@dataclass(frozen=True)
class Failure:
    """code: the kind of error, in the document. details: lines printed below the message."""

    code: str
    message: str
    remedy: str | None
    exit_code: int
    details: str = ""


def failure_of(error: BaseException) -> Failure:
    """Stores the traceback of an unexpected error in a new file."""
    if isinstance(error, BlkreelError):
        return Failure(error.code, error.message, error.remedy, error.exit_code)
    if limit := limit_reached(error):
        return failure_of(limit)
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return Failure("interrupted", "interrupted", None, 130)
    if isinstance(error, click.ClickException):
        return _of_click(error)
    if isinstance(error, OSError) and error.strerror:
        if isinstance(error, FileNotFoundError) and not error.filename and not Path().stat().st_nlink:
            return Failure("system", "the current directory was removed", "change to another one: cd", 1)
        if error.errno == errno.ENOSPC and not error.filename:
            return Failure("system", f"no space left for stdout, or for temporary files in {tempfile.gettempdir()}",
                           "free some space (df -h), or choose another directory: export TMPDIR=DIR", 1)
        where = f"{error.filename}: " if error.filename else ""
        return Failure("system", f"{where}{error.strerror}", None, 1)
    return _internal(error)


def wants_json(words: Sequence[str]) -> bool:
    """Whether a command line, maybe an invalid one, asks for JSON. A captured command has options of its own."""
    return "--json" in (words[:words.index("--")] if "--" in words else words)


def print_failure(failure: Failure, as_json: bool) -> None:
    message, remedy = as_typed(failure.message), failure.remedy and as_typed(failure.remedy)
    print(f"blkreel: {printable('; '.join(filter(None, (message, remedy))))}", file=sys.stderr)
    if failure.details:
        print(failure.details, file=sys.stderr)
    if as_json:
        print(json.dumps({"version": 1, "error": {"code": failure.code, "message": message, "remedy": remedy}}),
              flush=True)


def _of_click(error: click.ClickException) -> Failure:
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context else "blkreel"
    see_help = f"see: {path} --help"
    if isinstance(error, click.NoSuchOption):
        options = [name for parameter in context.command.get_params(context) if isinstance(parameter, click.Option)
                   and not parameter.hidden for name in parameter.opts] if context else []
        message = f"{_called(path)}no such option: {error.option_name}"
        return Failure("usage", message, did_you_mean(error.option_name, options, see_help), error.exit_code)
    message = " ".join(error.format_message().split()).replace(". Choose from:", "; choose from").rstrip(".")
    return Failure("usage", f"{_called(path)}{within_sentence(message)}", see_help, error.exit_code)


def _called(path: str) -> str:
    """`capture: ` for the path `blkreel capture`."""
    command = path.partition(" ")[2]
    return f"{command}: " if command else ""


def _internal(error: BaseException) -> Failure:
    """A full disk leaves the traceback on stderr."""
    message = f"internal error: {type(error).__name__}: {error}"
    lines = "\n".join(map(printable, "".join(traceback.format_exception(error)).splitlines()))
    details = f"blkreel {__version__}: {sys.argv}\n{lines}"
    try:
        with tempfile.NamedTemporaryFile("w", prefix="blkreel-error-", suffix=".txt", delete=False) as file:
            file.write(details)
    except OSError:
        return Failure("internal", message, None, 1, details)
    return Failure("internal", f"{message}; details in {file.name}", "attach that file to a bug report", 1)
