"""`blkreel top`: current I/O of drives and processes. Writes nothing."""

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from types import FrameType
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from blkreel.capture.drives import MAX_DRIVES, drives_to_watch, helper_arguments
from blkreel.capture.helper import Helper, Nowhere
from blkreel.capture.namespaces import refuse_other_clock
from blkreel.capture.options import CaptureOptions
from blkreel.cli.options import completion
from blkreel.cli.options.types import DURATION_NS, NOT_TRUSTWORTHY
from blkreel.cli.ui.live_task import format_clock
from blkreel.cli.ui.live_view import SORTS, LiveView, ThreadNames, drive_metrics, process_metrics
from blkreel.cli.ui.terminal_guard import suspend
from blkreel.common.console import Console, notice
from blkreel.common.device import Drive, list_drives
from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.files.json_file import print_json
from blkreel.common.system import handled_signals
from blkreel.common.units import format_count, format_ns
from blkreel.traces.live import Interval

_MIN_INTERVAL_NS = 100_000_000  # the capture helper reports ten times a second
_ATTACH_TIMEOUT_S = 60
_MIN_SPACED_LINES = 20  # a lower terminal gets no blank lines
_KEYS = {name[0]: name for name in SORTS}
_HELP = "q: quit   sort by   " + "   ".join(f"{key}: {name}" for key, name in _KEYS.items())


@click.command()
@click.argument("devices", metavar="[DEVICE]...", nargs=-1, shell_complete=completion.drives)
@click.option("--path", type=click.Path(readable=False), help="Show the drive that holds this directory or file.")
@click.option("--interval", "interval_ns", type=DURATION_NS, default="1s", show_default=True, metavar="TIME",
              help="Interval of the metrics, at least 100ms.")
@click.option("--for", "duration_ns", type=DURATION_NS, metavar="TIME",
              help="Stop after this time, such as 60s or 5min.")
@click.option("--once", is_flag=True, help="Show one interval and exit.")
@click.option("--sort", type=click.Choice(list(SORTS)), default="depth", show_default=True,
              help="Sort drives and processes by this column.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each interval.")
def command(devices: tuple[str, ...], path: str | None, interval_ns: int, duration_ns: int | None, once: bool,
            sort: str, as_json: bool) -> int:
    """Show throughput, IOPS, depth and latency of drives and processes.

    Counts each I/O, as a capture does, and writes nothing. Shows all drives if none is named. Press q or Ctrl-C to
    quit.
    Prints lines if stdout is not a terminal. Needs root.

    \b
    sudo blkreel top
    sudo blkreel top /dev/nvme0n1 --interval 500ms
    sudo blkreel top --path ~/Games --for 60s --json | jq '.drives[0].p99_ns'
    """
    if interval_ns < _MIN_INTERVAL_NS:
        raise UsageError(f"--interval {format_ns(interval_ns)} is too short",
                         f"use {format_ns(_MIN_INTERVAL_NS)} or more")
    refuse_other_clock()
    drives = _drives(devices, path)
    console = Console()
    if as_json:
        output = _Lines(_print_json)
    elif once or not console.is_terminal or console.is_dumb_terminal:
        output = _Lines(_table_printer(console, sort) if once and console.is_terminal else _print_lines)
    else:
        output = _Screen(console, sort)
    return _Monitor(drives, interval_ns, duration_ns, once, output).run()


def _drives(devices: Sequence[str], path: str | None) -> list[Drive]:
    if devices or path is not None:
        return drives_to_watch(list(devices), path, notice)
    drives = list_drives()
    drives = [drive for drive in drives if drive.kind in ("disk", "zram")] or [
        drive for drive in drives if drive.kind == "loop"]
    if not drives:
        raise UsageError("no drive on this machine", "name a device, for example: blkreel top /dev/sda")
    if len(drives) > MAX_DRIVES:
        notice(f"only the first {MAX_DRIVES} of {len(drives)} drives are shown; name the drives to show")
    return drives[:MAX_DRIVES]


class _Lines:
    """Prints each interval. keys: a terminal to read keys from."""

    keys: int | None = None
    suspend_requested = False

    def __init__(self, show: Callable[[Interval, Sequence[str], ThreadNames, int], None]):
        self.show = show

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *reason: object) -> None:
        pass

    def press(self, key: bytes) -> bool:
        """Handle a key; returns whether to quit."""
        return False

    def suspend(self) -> None:
        """Stop the process after Ctrl-Z."""


def _print_json(interval: Interval, paths: Sequence[str], names: ThreadNames, realtime_ns: int) -> None:
    drives = [{"path": path, **drive_metrics(interval, index)} for index, path in enumerate(paths)]
    print_json({"version": 1, "begin_ns": interval.begin_ns, "end_ns": interval.end_ns,
                "realtime_ns": realtime_ns, "lost": interval.lost, "drives": drives,
                "processes": sorted(process_metrics(interval, names), key=SORTS["depth"], reverse=True)})


def _print_lines(interval: Interval, paths: Sequence[str], names: ThreadNames, realtime_ns: int) -> None:
    for index, path in enumerate(paths):
        metrics = drive_metrics(interval, index)
        times = ", ".join(f"{name} {'-' if value is None else format_ns(value)}" for name, value in (
            ("mean", metrics["mean_ns"]), ("p50", metrics["p50_ns"]), ("p99", metrics["p99_ns"])))
        print(f"{interval.end_ns / 1e9:.1f} s {path}: read {metrics['read_mb_s']:.1f} MB/s, write "
              f"{metrics['write_mb_s']:.1f} MB/s, {metrics['iops']:,.0f} IOPS, depth {metrics['depth']:.1f}, {times}, "
              f"lost {format_count(interval.lost or 0)}", flush=True)


def _table_printer(console: Console, sort: str) -> Callable[[Interval, Sequence[str], ThreadNames, int], None]:
    view = LiveView(console, sort)

    def show(interval: Interval, paths: Sequence[str], names: ThreadNames, realtime_ns: int) -> None:
        view.set_interval(interval, paths, names)
        console.print(view)

    return show


class _Screen(_Lines):
    """Draws on the whole terminal, and restores it at the end."""

    def __init__(self, console: Console, sort: str):
        super().__init__(self._show)
        self.console, self._view = console, LiveView(console, sort)
        self.keys = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._terminal_settings: list[Any] | None = None
        self._live = self._new_live()
        self._began = time.monotonic()

    def __enter__(self) -> "_Screen":
        if self.keys is not None:
            self._terminal_settings = termios.tcgetattr(self.keys)
        self._begin()
        return self

    def __exit__(self, *reason: object) -> None:
        self._end()

    def _new_live(self) -> Live:
        return Live(self, console=self.console, auto_refresh=False, screen=True)

    def _begin(self) -> None:
        if self.keys is not None:
            tty.setcbreak(self.keys, termios.TCSADRAIN)
        self._live = self._new_live()
        self._live.start(refresh=True)

    def _end(self) -> None:
        try:
            with suppress(OSError):
                self._live.stop()
        finally:
            if self.keys is not None and self._terminal_settings is not None:
                with suppress(termios.error):
                    termios.tcsetattr(self.keys, termios.TCSADRAIN, self._terminal_settings)

    def suspend(self) -> None:
        """Restore the terminal, stop, and draw again after the process is resumed."""
        self.suspend_requested = False
        self._end()
        suspend()
        self._begin()

    def press(self, key: bytes) -> bool:
        character = key.decode(errors="replace")
        if character in _KEYS:
            self._view.sort = SORTS[_KEYS[character]]
            self._live.refresh()
        return character in ("q", "Q", "")  # "": the terminal is closed

    def _show(self, interval: Interval, paths: Sequence[str], names: ThreadNames, realtime_ns: int) -> None:
        self._view.set_interval(interval, paths, names)
        self._live.refresh()

    def __rich__(self) -> Group:
        title = Text(f"blkreel top, {format_clock(time.monotonic() - self._began)}", style="bold")
        keys = Text(_HELP, style="dim", no_wrap=True, overflow="ellipsis")
        gap = [Text()] if self.console.height >= _MIN_SPACED_LINES else []
        self._view.reserved_lines = 2 + 2 * len(gap)
        return Group(title, *gap, self._view, *gap, keys)


class _Monitor:
    """Counts the I/O of drives until it is stopped, and passes each interval to `output`."""

    def __init__(self, drives: list[Drive], interval_ns: int, duration_ns: int | None, once: bool, output: _Lines):
        self._drives, self._interval_ns, self._once, self._output = drives, interval_ns, once, output
        self._duration_ns = duration_ns
        self._ends_at: float | None = None
        self._epoch_ns: int | None = None
        self._lost = self._lost_before = 0  # before: until the last removal of a drive
        self._over = False
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> int:
        """Show intervals until the end; returns the exit code. Raises BlkreelError if no drive is left."""
        with self._signals(), self._output:
            while not self._over:
                removed = self._until_removed()
                left = [drive for drive in self._drives if drive not in removed]
                if removed and not left:
                    raise BlkreelError(f"{removed[0].path} was removed", "look at the kernel log: dmesg")
                if removed:
                    notice(f"{removed[0].path} was removed; the others are still shown")
                self._drives, self._lost_before = left, self._lost
        return NOT_TRUSTWORTHY if self._lost else 0

    def _until_removed(self) -> list[Drive]:
        """Show intervals until the end, or until drives are removed; returns these."""
        nowhere = Nowhere()
        words = ["--programs", "auto", "--ring-bytes", str(CaptureOptions.ring_bytes), "--without-uses",
                 *helper_arguments(self._drives)]
        helper = Helper(words, nowhere, self._wake_up, self._interval_ns, self._wake_up)
        try:
            self._wait_attached(helper)
            if self._duration_ns and self._ends_at is None:
                self._ends_at = time.monotonic() + self._duration_ns / 1e9
            while not (self._over or helper.end or helper.error):
                self._wait()
                self._show(helper)
        finally:
            helper.stop()
            nowhere.close()
        if helper.error:
            raise helper.error
        if not self._once:
            self._show(helper)  # I/Os since the last interval, so that the totals are complete
        totals = helper.end["drives"] if helper.end else []
        return [drive for drive, entry in zip(self._drives, totals, strict=False) if entry.get("gone")]

    def _wait_attached(self, helper: Helper) -> None:
        deadline = time.monotonic() + _ATTACH_TIMEOUT_S
        while not (helper.attached or helper.error or self._over):
            if time.monotonic() > deadline:
                raise BlkreelError(f"the capture helper did not attach its programs in {_ATTACH_TIMEOUT_S} s",
                                   "run: blkreel doctor")
            self._wait()

    def _show(self, helper: Helper) -> None:
        for interval in helper.intervals():
            assert helper.attached is not None
            realtime_ns = helper.attached["realtime_ns"] + interval.end_ns
            self._epoch_ns = self._epoch_ns or helper.attached["epoch_ns"]
            since_start_ns = helper.attached["epoch_ns"] - self._epoch_ns
            interval.begin_ns += since_start_ns
            interval.end_ns += since_start_ns
            interval.lost = self._lost = self._lost_before + (interval.lost or 0)
            self._output.show(interval, [drive.path for drive in self._drives], helper.names, realtime_ns)
            if self._once:
                self._over = True
                return

    def _wait(self) -> None:
        """Wait for an interval, a key, a signal or the end."""
        left_s = None if self._ends_at is None else self._ends_at - time.monotonic()
        if left_s is not None and left_s <= 0:
            self._over = True
            return
        keys = self._output.keys
        ready, _, _ = select.select([self._woken] + ([keys] if keys is not None else []), [], [],
                                    1.0 if left_s is None else min(left_s, 1.0))
        if self._woken in ready:
            with suppress(BlockingIOError):
                os.read(self._woken, 4096)
        if keys is not None and keys in ready:
            self._over = self._output.press(os.read(keys, 1)) or self._over
        if self._output.suspend_requested:
            self._output.suspend()

    def _wake_up(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._wake, b"x")

    def _signals(self) -> AbstractContextManager[None]:
        def end(number: int, frame: FrameType | None) -> None:
            self._over = True
            self._wake_up()

        def request_suspend(number: int, frame: FrameType | None) -> None:
            self._output.suspend_requested = True
            self._wake_up()

        handlers = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), end)
        if self._output.keys is not None:
            handlers[signal.SIGTSTP] = request_suspend
        return handled_signals(handlers)
