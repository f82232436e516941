"""Option types and decorators that several subcommands share.

Paths are declared with readable=False throughout: click's own check would answer before ours, without a remedy.
"""

import click

from blkreel.traces.errors import UsageError
from blkreel.traces.units import parse_size_bytes, parse_time_ns


class _Unit(click.ParamType):
    def __init__(self, name, parse):
        self.name, self._parse = name, parse

    def convert(self, value, param, ctx):
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


SIZE_BYTES = _Unit("size", parse_size_bytes)
TIME_NS = _Unit("time", parse_time_ns)

force = click.option("--force", is_flag=True, help="Overwrite an output that exists.")
_percent = click.IntRange(0, 100)
_compressible = click.option("--compressible", type=_percent, default=0, show_default=True, metavar="PERCENT",
                             help="So much of the data written a compressor takes away.")
_duplicates = click.option("--duplicates", type=_percent, default=0, show_default=True, metavar="PERCENT",
                           help="So many of the 4K blocks written are copies of others.")


def payload(command):
    """What is written, for commands that write."""
    return _compressible(_duplicates(command))


no_live = click.option("--no-live", is_flag=True, help="Show how far it is in one line, without the drives.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
