"""Options of commands that read traces: with how many processes, where, and what becomes of unreadable ones."""

import functools
import sys

import click

from blkreel.analysis.scale import Way
from blkreel.traces.errors import UsageError
from blkreel.traces.places import place


class _Trace(click.ParamType):
    """A path or URL. What is there is looked at later, by what names the remedy."""

    name = "trace"

    def convert(self, value, param, ctx):
        return place(value)


TRACE = _Trace()

_OPTIONS = (
    click.option("--exact", is_flag=True,
                 help="Percentiles of each value, however many I/Os there are. Of more than 4 million they are else of "
                      "bins, at most 0.4 % off."),
    click.option("--jobs", type=click.IntRange(min=1), show_default="number of cores",
                 help="Read with so many processes."),
    click.option("--cluster", metavar="ADDRESS",
                 help="Read with the workers of a Dask cluster: the address of its scheduler, tcp://HOST:8786."),
    click.option("--keep/--no-keep", default=True, show_default=True,
                 help="Keep figures beside the traces, so that these are read once only (docs/scale.md)."),
    click.option("--skip-unreadable", is_flag=True,
                 help="Go on without traces that cannot be read; they are listed, and the exit code is 3."),
)


def scale_options(command):
    """Adds the options; the command gets them as one argument `way`, a Way. Where traces were left out, it ends with
    exit code 3, if nothing else has ended it before."""
    @functools.wraps(command)
    def with_scale(*arguments, exact, jobs, cluster, keep, skip_unreadable, **others):
        if jobs is not None and cluster:
            raise UsageError("--jobs is of this machine, and with --cluster the workers read", "name one of the two")
        way = Way(jobs, cluster, keep, skip_unreadable, exact)
        result = command(*arguments, way=way, **others)
        for _, why in way.left_out:
            print(f"blkreel: left out: {why}", file=sys.stderr)
        return result or (3 if way.left_out else result)

    for option in reversed(_OPTIONS):
        with_scale = option(with_scale)
    return with_scale
