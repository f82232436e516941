"""The command as a whole: its subcommands, and how an error leaves it."""

import os
import sys
from importlib import import_module
from keyword import iskeyword

import click

from blkreel import __version__
from blkreel.traces.errors import BlkreelError
from blkreel.traces.no_pandas import keep_out_pandas

# Loaded when asked for: `blkreel --help` must not wait for pandas and the chart library.
COMMANDS = {
    "capture": "Record what an application does to a drive.",
    "top": "Show what drives do now, and for whom.",
    "import": "Make a trace of another tool's recording.",
    "precondition": "Put a drive into a known state.",
    "replay": "Reissue a trace on a drive.",
    "test": "Carry a published test out on a drive, from its states to its figures.",
    "power": "Put the log of a meter to a run or a test that has ended.",
    "report": "Show one trace or run as a page and a table.",
    "compare": "Show many runs side by side as a page and a table.",
    "info": "Show what a trace holds.",
    "check": "Verify that a trace is whole and sound.",
    "recover": "Finish a trace whose capture or replay died.",
    "samples": "List the traces that ship with blkreel.",
    "drives": "List drives, and whether each can be replayed on.",
    "doctor": "Check this machine, and name what mends it.",
    "demo": "From a real application to a comparison report, on scratch drives.",
}


class PipeClosed(Exception):
    """Who read stdout has ended. Not an OSError: click ends with 1 on one that tells of a pipe."""


class LazyGroup(click.Group):
    def make_context(self, *arguments, **others):
        try:
            return super().make_context(*arguments, **others)
        except BrokenPipeError as error:
            raise PipeClosed from error

    def invoke(self, ctx):
        try:
            ended = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()  # here, and not when Python ends: then it is too late for an exit code
            return ended
        except BrokenPipeError as error:
            raise PipeClosed from error

    def list_commands(self, ctx):
        return list(COMMANDS)

    def get_command(self, ctx, name):
        if name not in COMMANDS:
            return None
        module = f"{name}_" if iskeyword(name) else name
        return import_module(f"blkreel.cli.{module}").command

    def format_commands(self, ctx, formatter):
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="blkreel")
def cli():
    """Record what real applications do to a drive, and replay it on any other drive.

    \b
    sudo blkreel capture -o game.parquet --path ~/Games --cold -- ./start-game
    sudo blkreel precondition /dev/nvme1n1 --state client --destroy SERIAL
    sudo blkreel replay game.parquet --on /dev/nvme1n1 -o run/ --destroy SERIAL
    blkreel compare run/ other-run/ -o compare.html
    """


def main() -> None:
    """Run the command.

    Exit codes: 0 done, 1 failed, 2 usage, 3 not trustworthy, 4 a condition of `--fail-if` is met, 5 refused for safety,
    130 interrupted, 141 who read stdout has ended.
    """
    keep_out_pandas()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without Unicode gets a ? for what it does not have
    try:
        sys.exit(cli.main(standalone_mode=False) or 0)
    except BlkreelError as error:
        fail(str(error), error.exit_code)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.Abort:
        fail("interrupted", 130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (PipeClosed, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered must not fail again when Python ends
        sys.exit(141)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{where}{error.strerror or error}", 1)


def fail(message: str, exit_code: int) -> None:
    print(f"blkreel: {message}", file=sys.stderr)
    sys.exit(exit_code)
