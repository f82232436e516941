"""The `blkreel` command: its subcommands, and the exit code of each error."""

import codecs
import gc
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import click

from blkreel import __version__
from blkreel.cli.command_groups import LazyGroup, PipeClosed
from blkreel.cli.command_table import environment_variable
from blkreel.common.limits import address_space_limit_bytes, require_least

_SIMILAR = "blkreel-similar"  # name of an error handler
_IN_ASCII = {"µ": "u", "μ": "u", "−": "-", "–": "-", "×": "x", "·": "-", "≤": "<=", "≥": ">=", "±": "+-", "…": "~"}


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="blkreel")
def cli() -> None:
    """Record block I/O of real applications, and replay it on any drive.

    \b
    sudo blkreel capture -o game.parquet --path ~/Games --cold -- ./start-game
    sudo blkreel precondition /dev/nvme1n1 --state client --destroy SERIAL
    sudo blkreel replay game.parquet --on /dev/nvme1n1 -o run/ --destroy SERIAL
    blkreel compare run/ other-run/ -o compare.html
    """


def main() -> None:
    """Run the command.

    Exit codes: 0 done, 1 failed, 2 usage, 3 not trustworthy, 4 a condition of `--fail-if` is true, 5 refused for
    safety, 6 ended with writes in flight, 130 interrupted, 141 the reader of stdout has exited; 128 + the number of a
    signal that ended it.
    """
    gc.disable()  # until the command is loaded (LazyGroup): a tenth of the time of a short one went into it
    _open_standard_descriptors()
    received = _signals_as_interrupts()
    keep_out_pandas()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_SIMILAR)
    try:
        require_least()
        _import_numpy_in_little_memory()
        sys.exit(cli.main(standalone_mode=False) or 0)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except (PipeClosed, BrokenPipeError):
        _end_without_stdout(141)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a user gets one line, a bug report the traceback
        from blkreel.cli.failures import failure_of, print_failure, wants_json  # only a failure needs it

        failure = failure_of(error)
        exit_code = 128 + received[0] if received and failure.code == "interrupted" else failure.exit_code
        try:
            print_failure(failure, wants_json(sys.argv[1:]))
        except BrokenPipeError:
            _end_without_stdout(141)
        except OSError:
            _end_without_stdout(exit_code)  # it is on a full disk; stderr has the message
        sys.exit(exit_code)


def _similar(error: UnicodeError) -> tuple[str, int]:
    """For a character that the terminal's encoding lacks: one like it, else `?`. A figure keeps its unit and sign."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start:error.end]
    return "".join(_IN_ASCII.get(character, "?") for character in text), error.end


codecs.register_error(_SIMILAR, _similar)


def _signals_as_interrupts() -> list[int]:
    """Let SIGTERM and SIGHUP end the command as Ctrl-C does, unless they are ignored (nohup): else what it was writing
    stays under a temporary name. Returns the list that gets the number of the signal."""
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        # A second SIGTERM ends it at once; the kernel may send SIGHUP more than once by itself.
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)
    return received


def _open_standard_descriptors() -> None:
    """Give closed ones of 0, 1 and 2 to /dev/null: otherwise a trace or a pipe of a helper gets the number, and what a
    program prints is written into it."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def keep_out_pandas() -> None:
    """Make `import pandas` fail. Call it before pyarrow converts the first column to an array.

    pyarrow imports pandas at that moment if it can, which takes 40 MiB and some tenths of a second.
    """
    if "pandas" not in sys.modules and _NoPandas not in sys.meta_path:
        sys.meta_path.insert(0, _NoPandas)


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("disabled in this command", name=name)


def _import_numpy_in_little_memory() -> None:
    """OpenBLAS reserves memory for each thread, and sends SIGINT to this process if it cannot start them."""
    if address_space_limit_bytes() is None:
        return
    with environment_variable("OPENBLAS_NUM_THREADS", "1", force=True):
        import numpy  # noqa: F401 - the library reads the variable now


def _end_without_stdout(exit_code: int) -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # buffered output must not fail again when Python exits
    sys.exit(exit_code)
