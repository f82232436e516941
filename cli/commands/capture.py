"""`blkreel capture`: record the I/O of a drive into a trace."""

import os
import shlex
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from blkreel.capture.command import user_of_command
from blkreel.capture.drives import LAYERS
from blkreel.capture.options import CaptureOptions
from blkreel.capture.session import CaptureMonitor, CaptureResult, run_capture
from blkreel.capture.sources import SOURCES
from blkreel.cli.options import completion
from blkreel.cli.options.types import (
    DURATION_NS,
    INTERRUPTED,
    KEY,
    NOT_TRUSTWORTHY,
    SIZE_BYTES,
    WORKLOAD_ONLY,
    CommandAfterDashes,
    as_json,
    force,
    public,
    trace_output,
)
from blkreel.cli.ui.live_task import LiveTask, live_progress
from blkreel.cli.ui.live_view import INTERVAL_NS, ThreadNames
from blkreel.cli.ui.pty_passthrough import PtyPassthrough
from blkreel.cli.ui.terminal_guard import supports_live_view
from blkreel.cli.ui.trace_summary import layer_documents, show_trace, trace_document
from blkreel.common.console import notice
from blkreel.common.device import Drive
from blkreel.common.errors import UsageError
from blkreel.common.files.json_file import print_json
from blkreel.common.progress import ProgressTask
from blkreel.common.units import counted, format_count
from blkreel.traces.format.reader import has_workload_io, open_trace
from blkreel.traces.live import Interval

_RATE_OVER_S = 2.0


class _Capture(CommandAfterDashes):
    def refuse_missing_dashes(self, ctx: click.Context, args: list[str]) -> None:
        """Raise UsageError with the corrected command line if an argument is a program and not a device."""
        left = list(args)
        while left:
            parser = self.make_parser(ctx)
            parser.allow_interspersed_args = False
            try:
                devices = parser.parse_args(args=left)[0]["devices"]
            except click.UsageError:
                return  # an invalid option before the command; the real parser raises it again
            left = list(devices) if isinstance(devices, list | tuple) else []  # from the first argument on
            if left and _is_program(left[0]):
                corrected = ["blkreel", "capture", *args[:len(args) - len(left)], "--", *left]
                raise UsageError(f"{left[0]} is a program, not a device", f"put -- before it: {shlex.join(corrected)}")
            left = left[1:]


def _is_program(word: str) -> bool:
    path = shutil.which(word)
    return path is not None and not Path(f"/sys/class/block/{Path(word).name}").exists()


@click.command(cls=_Capture, options_metavar="[OPTIONS]")
@click.argument("devices", metavar="[DEVICE]... [-- COMMAND ...]", nargs=-1, shell_complete=completion.drives)
@trace_output
@click.option("--path", type=click.Path(readable=False),
              help="Record the drive that holds this directory or file.")
@click.option("--layer", type=click.Choice(LAYERS), default="device", show_default=True,
              help="Of a volume (dm, md, bcache): record the drives below it, or the volume itself.")
@click.option("--for", "duration_ns", type=DURATION_NS, metavar="TIME",
              help="Stop after this time, such as 60s or 5min.")
@click.option("--pid", type=click.IntRange(min=1), metavar="N",
              help="Mark the I/O of this process and its children as workload I/O.")
@click.option("--cgroup", metavar="PATH", help="Mark the I/O of this control group (v2) as workload I/O.")
@click.option("--workload-only", "own_only", is_flag=True, help=WORKLOAD_ONLY)
@click.option("--until-exit", is_flag=True, help="Stop when the process of --pid exits.")
@click.option("--files", is_flag=True, help="Record the file of each I/O: inode and path.")
@click.option("--private", is_flag=True,
              help="Record no names: of programs, threads, control groups, host and image, nor the command line.")
@click.option("--keep", "keep_ns", type=DURATION_NS, metavar="TIME",
              help="Flight recorder: keep only the I/Os of the last TIME.")
@click.option("--max-size", "max_bytes", type=SIZE_BYTES, metavar="SIZE",
              help="Flight recorder: keep only the last SIZE, at about 80 bytes per I/O.")
@click.option("--title", metavar="TEXT",
              help="Title of the workload in reports, such as 'Game load'. [default: the file]")
@click.option("--description", metavar="TEXT", help="Description of the workload in reports: one sentence.")
@click.option("--cold", is_flag=True, help="Drop the page cache first, so that reads reach the drive.")
@click.option("--user", metavar="USER", help="Run the command as this user. [default: the user who called sudo]")
@click.option("--ring-size", "ring_bytes", type=SIZE_BYTES, default="16M", show_default=True, metavar="SIZE",
              help="Buffer between the kernel and the capture helper. Increase it if I/Os are lost.")
@click.option("--source", type=click.Choice(["auto", *SOURCES]), default="auto", show_default=True,
              help="Event source. auto: the first that works on this machine.")
@click.option("--live/--no-live", "live", default=None,
              help="Show the live view. [default: on a terminal, without a COMMAND]")
@click.option("--programs", type=click.Choice(["auto", "tp_btf", "raw_tp"]), default="auto", show_default=True,
              help="Kind of BPF programs.")
@click.option("--without-io-start", is_flag=True, hidden=True)
@force
@public
@as_json
@click.pass_context
def command(ctx: click.Context, /, devices: Sequence[str], as_json: bool, live: bool | None, without_io_start: bool,
            **options_: Any) -> int:
    """Record each I/O of one or more drives into a trace: time, offset, size, latency and thread.

    The whole drive is recorded, I/O of other programs included. With a COMMAND, the default drive is the one that
    holds the current directory, and the capture lasts until the command exits and returns its exit code: 128 + N if
    signal N ended it, so 130 after Ctrl-C. Without a COMMAND, name a drive or --path; the capture lasts until Ctrl-C
    or for the time of --for. Needs root.

    With --live, the output of the COMMAND appears line by line above the live view. A command that draws the
    whole screen gets the terminal for itself, and the view ends.

    With --keep or --max-size, the capture runs until Ctrl-C and keeps only the latest I/Os. The signal USR1
    saves them as OUTPUT-TIMESTAMP, and the capture continues.

    \b
    sudo blkreel capture -o game.parquet --path ~/Games --cold -- ./start-game
    sudo blkreel capture -o game.parquet --path ~/Games --live -- ./start-game
    sudo blkreel capture /dev/nvme0n1 -o minute.parquet --for 60s
    sudo blkreel capture /dev/sda /dev/sdb -o both.parquet
    sudo blkreel capture /dev/mapper/home --layer volume -o home.parquet --for 60s
    sudo blkreel capture --path /srv -o db.parquet --pid 1234 --workload-only --until-exit
    sudo blkreel capture /dev/sda -o last.parquet --keep 10min
    """
    captured_command = ctx.meta[KEY]
    draws = supports_live_view(Console(stderr=True)) and (not captured_command if live is None else live)
    if live and not draws:
        notice("no live view: stderr is not a terminal with cursor control")
    options = CaptureOptions(devices=list(devices), command=captured_command, io_start=not without_io_start,
                             live_ns=INTERVAL_NS if draws else None, **options_)
    with _monitored(options, live) as (monitor, streams):
        result = run_capture(replace(options, command_streams=dict(streams)), monitor)
    metadata = result.metadata
    document = trace_document(result.path, result.ios, result.bytes, result.duration_ns, metadata)
    if metadata["storage_layer"] == "both":
        layers = document["layers"] = layer_documents(open_trace(result.path))
        document |= {name: layers[0][name] for name in ("ios", "bytes") if layers}
    if as_json:
        print_json({**document, "diskstats": metadata.get("diskstats"),
                    "helper_cpu_ns": metadata.get("helper_cpu_ns"),
                    "command_exit_code": result.command_exit_code, "missing": result.missing,
                    "incomplete": result.incomplete})
    else:
        show_trace(document)
    for line in result.missing + result.incomplete:
        notice(f"not complete: {line}")
    if empty := why_empty(options, result):
        notice(empty)
    return exit_code(captured_command, result)


def exit_code(captured_command: Sequence[str], result: CaptureResult) -> int:
    if captured_command and result.interrupted and result.command_exit_code is None:
        return INTERRUPTED
    return result.command_exit_code or (0 if result.trustworthy else NOT_TRUSTWORTHY)


def why_empty(options: CaptureOptions, result: CaptureResult) -> str:
    """What to do about a trace without I/O of its workload; "" if it has some, or lacks what was recorded."""
    if result.missing or result.metadata.get("ring", {}).get("dropped_rows"):
        return ""
    drives = ", ".join(device["path"] for device in result.metadata["devices"])
    if not sum(result.ios.values()):
        empty = f"no I/O on {drives} during the capture"
    elif options.command and result.metadata["source_format"].startswith("bpf:") and not (
            has_workload_io(open_trace(result.path))):
        empty = f"no I/O of the command on {drives}"
    else:
        return ""
    if not options.command:
        return empty
    volumes = ", ".join(volume["path"] for volume in result.metadata.get("volumes", ()) if sum(result.ios.values()))
    by_volume = f"; or kernel threads of {volumes} issue its I/O, which --layer volume records" if volumes else ""
    if options.cold:
        return f"{empty}: it uses other drives; name the directory that it reads: --path DIR{by_volume}"
    return (f"{empty}: its data is in the page cache, or on another drive; to read the data from the drive: add "
            f"--cold; for another drive: --path DIR{by_volume}")


@contextmanager
def _monitored(options: CaptureOptions, live: bool | None) -> "Iterator[tuple[_Monitor, Mapping[str, int]]]":
    """The monitor, and the streams for the command's output. A command without --live has the terminal for itself."""
    total = options.duration_ns / 1e9 if options.duration_ns else None
    recorder = options.keep_ns is not None or options.max_bytes is not None
    if recorder and not options.command and not Console(stderr=True).is_terminal:
        yield _Monitor(None), {}  # runs for days: progress lines would fill its log
    elif not options.command:
        with live_progress("capturing", total, live=live) as task:
            yield _Monitor(task), {}
    elif not options.live_ns:
        yield _Monitor(None), {}
    else:
        user = user_of_command(options.user)
        output = PtyPassthrough(Console(stderr=True), user.pw_uid if user else None)
        with LiveTask(output.console, "capturing", total, [], pending=output.pending) as view:
            try:
                yield _Monitor(view, lambda: output.begin(view)), output.streams
            finally:
                output.end()


class _Monitor(CaptureMonitor):
    """Shows progress and notices. task: None to show notices only. on_run: called after the command was started."""

    def __init__(self, task: ProgressTask | None, on_run: Callable[[], None] | None = None):
        self._task, self._on_run = task, on_run
        self._seconds = self._rate = 0.0
        self._events = 0

    def notice(self, line: str) -> None:
        notice(line)

    def progress(self, seconds: float, events: int | None, lost: int | None) -> None:
        if self._task is None:
            return
        if self._on_run:
            self._on_run()
        if events is None or lost is None:
            self._task.update(seconds, "I/Os and losses are counted at the end")
            return
        # Sources report in batches, so the rate of a shorter time would jump.
        if seconds - self._seconds >= _RATE_OVER_S:
            self._rate = (events - self._events) / (seconds - self._seconds)
            self._seconds, self._events = seconds, events
        self._task.update(seconds, f"{counted(events, 'I/O')}, {self._rate:,.0f}/s, {format_count(lost)} lost")

    def begun(self) -> None:
        notify_ready()

    def live(self, interval: Interval, drives: Sequence[Drive], names: ThreadNames) -> None:
        if isinstance(self._task, LiveTask):
            self._task.show_interval(interval, [drive.path for drive in drives], names)

    def over(self) -> None:
        """Recording has ended; the trace is being written, or the command still runs."""
        if isinstance(self._task, LiveTask):
            self._task.begin_step("captured, the trace is written" + " after the command exits" * bool(self._on_run))


def notify_ready() -> None:
    """Send READY=1 to the socket in NOTIFY_SOCKET, as sd_notify(3) specifies. Without that variable: nothing."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.connect("\0" + address[1:] if address.startswith("@") else address)
            manager.send(b"READY=1")
    except OSError as error:
        notice(f"the service manager was not notified: NOTIFY_SOCKET={address}: {error.strerror}")
