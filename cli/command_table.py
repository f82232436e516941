"""The commands and their summaries, and a command by its name."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from keyword import iskeyword

import click

from blkreel.cli.options.verbosity import add_verbosity
from blkreel.cli.options.without_effect import refuse_without_effect

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
    "emulate": "Run any program on an emulated drive.",
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
# Commands of cli/commands/FOLDER, beside those of a group of that name; other commands are in cli/commands itself.
_FOLDERS = {
    "trace": ("import", "export", "slice", "concat", "merge", "anonymize", "model", "info", "check", "recover",
              "samples"),
    "drive": ("precondition", "replay", "test", "emulate", "model-drive", "predict", "drives"),
    "results": ("power", "report", "compare"),
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
    group, _, file = name.replace("-", "_").rpartition(" ")
    folder = group or next((folder for folder, names in _FOLDERS.items() if name in names), "")
    module = ".".join(filter(None, ("blkreel.cli.commands", folder, f"{file}_" if iskeyword(file) else file)))
    # Its own allocator is no faster and keeps 30 to 70 MB of freed memory, which counts for the limit of a command.
    with environment_variable("ARROW_DEFAULT_MEMORY_POOL", "system"):
        command: click.Command = import_module(module).command
    return add_verbosity(refuse_without_effect(name, command))


@contextmanager
def environment_variable(name: str, value: str, *, force: bool = False) -> Iterator[None]:
    """Set what a library reads when it is imported, during the block only: a captured command gets the environment
    of the user.

    force: also in place of a value that the user has set.
    """
    before = os.environ.get(name)
    if force or before is None:
        os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
