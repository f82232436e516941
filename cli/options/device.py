"""The option --device: the number of a device of a trace."""

from collections.abc import Iterable

import click

from blkreel.common.console import notice
from blkreel.traces.format.trace import Trace

device_option = click.option("--device", type=int, metavar="N",
                             help="Number of a device of the trace: blkreel info.")


def note_numbers(trace: Trace, numbers: Iterable[int | None]) -> None:
    """Print which device a number is of, if another device has that number as its name, as volumes have."""
    names = [entry.get("name") for entry in trace.metadata.get("devices") or []]
    for number in numbers:
        named = names.index(str(number)) if str(number) in names else number
        if number is not None and named != number and 0 <= number < len(names):
            notice(f"device {number} is the one named {names[number]}; that named {number} is device {named}")
