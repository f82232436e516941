"""`blkreel capture`: record what an application does to a drive."""

import json
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from blkreel.capture.session import CaptureOptions, run_capture
from blkreel.capture.sources import SOURCES
from blkreel.capture.workload import user_of_command
from blkreel.cli.live import INTERVAL_NS
from blkreel.cli.live_task import LiveTask, live_progress
from blkreel.cli.options import SIZE_BYTES, TIME_NS, as_json, force
from blkreel.cli.passed_through import PassedThrough
from blkreel.cli.terminal_kept import can_be_drawn_on
from blkreel.traces.units import format_bytes, format_count, format_ns

_NOT_TRUSTWORTHY = 3
_RATE_OVER_S = 2.0


class _WithCommand(click.Command):
    """Keeps what stands behind `--` apart: it is the command to run, and its options are its own."""

    def parse_args(self, ctx, args):
        ctx.meta["blkreel.command"] = []
        if "--" in args:
            at = args.index("--")
            args, ctx.meta["blkreel.command"] = args[:at], args[at + 1:]
            if not ctx.meta["blkreel.command"]:
                raise click.UsageError("no command behind --", ctx)
        return super().parse_args(ctx, args)


@click.command(cls=_WithCommand, options_metavar="[OPTIONS]",
               short_help="Record what an application does to a drive.")
@click.argument("devices", metavar="[DEVICE]... [-- COMMAND ...]", nargs=-1)
@click.option("-o", "--output", required=True, type=click.Path(readable=False, path_type=Path),
              help="The trace to write.")
@click.option("--path", type=click.Path(readable=False),
              help="Record the drive that holds this directory or file.")
@click.option("--for", "duration_ns", type=TIME_NS, metavar="TIME", help="End after this time, like 60s or 5min.")
@click.option("--pid", type=click.IntRange(min=1), metavar="N",
              help="Mark the I/O of this process and all that it starts, as that of a COMMAND is.")
@click.option("--cgroup", metavar="PATH", help="Mark the I/O of this control group (v2).")
@click.option("--own-only", is_flag=True, help="Record nothing but what is marked so.")
@click.option("--until-exit", is_flag=True, help="End when the process of --pid ends.")
@click.option("--files", is_flag=True, help="Record of which file each I/O is: inode and path.")
@click.option("--keep", "keep_ns", type=TIME_NS, metavar="TIME",
              help="Flight recorder: hold only what came in the last TIME.")
@click.option("--max-size", "max_bytes", type=SIZE_BYTES, metavar="SIZE",
              help="Flight recorder: hold only the last SIZE of rows, about 80 bytes per I/O.")
@click.option("--cold", is_flag=True, help="Drop the page cache first, so that reads reach the drive.")
@click.option("--user", help="Run the command as this user. Default: whoever called sudo.")
@click.option("--ring-size", "ring_bytes", type=SIZE_BYTES, default="16M", show_default=True, metavar="SIZE",
              help="Memory between kernel and helper; more where I/Os are lost.")
@click.option("--source", type=click.Choice(["auto", *SOURCES]), default="auto", show_default=True,
              help="Where the I/Os come from; auto takes the first that can run.")
@click.option("--live/--no-live", "live", default=None,
              help="The live view. With a COMMAND it is shown on request only, below what the command prints. "
                   "[default: on a terminal, without a COMMAND]")
@click.option("--programs", type=click.Choice(["auto", "tp_btf", "raw_tp"]), default="auto", show_default=True,
              help="Kind of BPF programs.")
@click.option("--without-io-start", is_flag=True, hidden=True)
@force
@as_json
@click.pass_context
def command(ctx, devices, as_json, live, without_io_start, **given):
    """Record each I/O of one or more drives into a trace: when, where, how long, and by which thread.

    With a COMMAND, the capture lasts as long as it runs, and its exit code is passed on; without, until
    Ctrl-C or for the time of --for. The whole drive is recorded, other programs' I/O included. With a
    COMMAND and neither DEVICE nor --path it is the drive under the current directory. Needs root.

    On a terminal it shows what the drives do. A COMMAND has the terminal for itself, unless --live asks for both:
    what it prints stands above the view then, line by line, as of a game that prints a few; its input stays its own. A
    program that draws the whole screen gets it, and the view ends.

    With --keep or --max-size it goes on and holds only what came last, until Ctrl-C; the signal USR1 saves what is
    held by then as OUTPUT-TIMESTAMP.

    \b
    sudo blkreel capture -o game.parquet --path ~/Games --cold -- ./start-game
    sudo blkreel capture -o game.parquet --path ~/Games --live -- ./start-game
    sudo blkreel capture /dev/nvme0n1 -o minute.parquet --for 60s
    sudo blkreel capture /dev/sda /dev/sdb -o both.parquet
    sudo blkreel capture --path /srv -o database.parquet --pid 1234 --own-only --until-exit
    sudo blkreel capture /dev/sda -o last.parquet --keep 10min
    """
    own_words = ctx.meta["blkreel.command"]
    watched = can_be_drawn_on(Console(stderr=True)) and (not own_words if live is None else live)
    if live and not watched:
        print("blkreel: there is no live view: stderr is no terminal that one could be drawn on", file=sys.stderr)
    options = CaptureOptions(devices=list(devices), command=own_words, io_start=not without_io_start,
                             live_ns=INTERVAL_NS if watched else None, **given)
    with _shown(options, live) as (monitor, streams):
        result = run_capture(replace(options, command_streams=streams), monitor)
    document = _document(result)
    if as_json:
        print(json.dumps(document))
    else:
        _show(document)
    for line in result.missing + result.incomplete:
        print(f"blkreel: not complete: {line}", file=sys.stderr)
    if result.command_exit_code and not result.interrupted:
        return result.command_exit_code
    return _NOT_TRUSTWORTHY if result.missing else 0


@contextmanager
def _shown(options, live):
    """Who shows how it goes, as far as a command does not have the terminal; and where the command's output goes."""
    total = options.duration_ns / 1e9 if options.duration_ns else None
    if not options.command:
        with live_progress("capturing", total, live=live) as task:
            yield _Monitor(task), {}
    elif not options.live_ns:
        yield _Monitor(None), {}
    else:
        user = user_of_command(options.user)
        output = PassedThrough(Console(stderr=True), user.pw_uid if user else None)
        with LiveTask(output.console, "capturing", total, [], pending=output.pending) as task:
            try:
                yield _Monitor(task, lambda: output.begin(task)), output.streams
            finally:
                output.end()


class _Monitor:
    """Shows progress, where there is a task to show it, and notices. on_run: called when a command has been begun."""

    def __init__(self, task, on_run=None):
        self._task, self._on_run = task, on_run
        self._seconds = self._events = self._rate = 0

    def notice(self, line):
        print(f"blkreel: {line}", file=sys.stderr)

    def progress(self, seconds, events, lost):
        if self._task is None:
            return
        if self._on_run:
            self._on_run()
        if events is None:
            self._task.update(seconds, "I/Os and losses are counted when it ends")
            return
        # A source tells of its events now and then: between two looks there may be none, or those of twice the time.
        if seconds - self._seconds >= _RATE_OVER_S:
            self._rate = (events - self._events) / (seconds - self._seconds)
            self._seconds, self._events = seconds, events
        self._task.update(seconds, f"{format_count(events)} I/Os, {self._rate:,.0f}/s, {format_count(lost)} lost")

    def live(self, interval, drives, names):
        if self._task is not None and hasattr(self._task, "show"):
            self._task.show(interval, [drive.path for drive in drives], names)

    def over(self):
        """Nothing more is recorded: what comes now is the trace, or the rest of a command."""
        if hasattr(self._task, "say"):
            self._task.say("captured, and writes the trace" + " when the command has ended" * bool(self._on_run))


def _document(result):
    rows = sum(result.ios.values())
    file_bytes = result.path.stat().st_size
    metadata = result.metadata
    return {"version": 1, "path": str(result.path), "rows": rows, "ios": result.ios, "bytes": result.bytes,
            "duration_ns": result.duration_ns, "file_bytes": file_bytes,
            "bytes_per_io": round(file_bytes / rows, 2) if rows else None,
            "devices": [device["path"] for device in metadata["devices"]],
            "source_format": metadata["source_format"], "lost": metadata.get("lost", {}).get("total"),
            "in_flight_at_start": metadata.get("in_flight_at_start"),
            "in_flight_at_end": metadata.get("in_flight_at_end"), "ledger": metadata.get("ledger"),
            "diskstats": metadata.get("diskstats"), "helper_cpu_ns": metadata.get("helper_cpu_ns"),
            "command_exit_code": result.command_exit_code, "missing": result.missing, "incomplete": result.incomplete}


def _show(document):
    """A few lines on stdout."""
    per_io = f", {document['bytes_per_io']} bytes per I/O" if document["rows"] else ""
    print(f"{document['path']}: {format_count(document['rows'])} I/Os of {', '.join(document['devices'])} in "
          f"{format_ns(document['duration_ns'])}, {format_bytes(document['file_bytes'])}{per_io}")
    parts = [f"{op} {format_count(count)} ({format_bytes(document['bytes'][op])})"
             for op, count in document["ios"].items() if count]
    parts.append("lost unknown" if document["lost"] is None else f"lost {format_count(document['lost'])}")
    if document["in_flight_at_end"]:
        parts.append(f"in flight at the end {format_count(document['in_flight_at_end'])}")
    print("  " + ", ".join(parts))
