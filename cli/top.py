"""`blkreel top`: what drives do now, and for whom. Nothing is written."""

import json
import os
import select
import signal
import sys
import termios
import time
import tty
from contextlib import contextmanager, suppress

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from blkreel.capture.drives import MAX_DRIVES, drives_to_watch
from blkreel.capture.helper import Helper, Nowhere
from blkreel.capture.session import CaptureOptions
from blkreel.cli.console import Console
from blkreel.cli.live import SORTS, Picture, figures, processes
from blkreel.cli.options import TIME_NS
from blkreel.traces.device import list_drives
from blkreel.traces.errors import BlkreelError, UsageError
from blkreel.traces.units import format_count, format_ns

_NOT_TRUSTWORTHY = 3
_SHORTEST_NS = 100_000_000  # the helper hands over what came ten times a second
_ATTACH_TIMEOUT_S = 60
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SPACIOUS_LINES = 20
_KEYS = {name[0]: name for name in SORTS}
_HELP = "q: end   order by   " + "   ".join(f"{key}: {name}" for key, name in _KEYS.items())


@click.command()
@click.argument("devices", metavar="[DEVICE]...", nargs=-1)
@click.option("--path", type=click.Path(readable=False), help="Watch the drive that holds this directory or file.")
@click.option("--interval", "interval_ns", type=TIME_NS, default="1s", show_default=True, metavar="TIME",
              help="Over which figures are taken; at least 100ms.")
@click.option("--for", "duration_ns", type=TIME_NS, metavar="TIME", help="End after this time, like 60s or 5min.")
@click.option("--once", is_flag=True, help="Show one interval, and end.")
@click.option("--sort", type=click.Choice(list(SORTS)), default="depth", show_default=True,
              help="What drives and processes are ordered by.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each interval.")
def command(devices, path, interval_ns, duration_ns, once, sort, as_json):
    """Show what drives do now, and for which processes: throughput, IOPS, depth, latency.

    Every I/O is counted, as a capture records it, and nothing is written. Without DEVICE and --path all drives are
    watched. On a terminal it ends with q or Ctrl-C; elsewhere it prints lines. Needs root.

    \b
    sudo blkreel top
    sudo blkreel top /dev/nvme0n1 --interval 500ms
    sudo blkreel top --path ~/Games --for 60s --json | jq '.drives[0].p99_ns'
    """
    if interval_ns < _SHORTEST_NS:
        raise UsageError(f"--interval {format_ns(interval_ns)} is too short to be counted",
                         f"give {format_ns(_SHORTEST_NS)} or more")
    drives = _drives(devices, path)
    console = Console()
    if as_json:
        show = _json_lines()
    elif once or not console.is_terminal or console.is_dumb_terminal:
        show = _once(console, sort) if once and console.is_terminal else _plain_lines()
    else:
        show = _Screen(console, sort)
    return _Watch(drives, interval_ns, duration_ns, once, show).run()


def _drives(devices, path):
    if devices or path is not None:
        return drives_to_watch(list(devices), path, _notice)
    found = [drive for drive in list_drives() if drive.kind in ("disk", "zram")]
    found = found or [drive for drive in list_drives() if drive.kind == "loop"]
    if not found:
        raise UsageError("there is no drive to watch here", "name a device, as in: blkreel top /dev/sda")
    if len(found) > MAX_DRIVES:
        _notice(f"only the first {MAX_DRIVES} of {len(found)} drives are watched; name those that you want")
    return found[:MAX_DRIVES]


def _notice(line):
    print(f"blkreel: {line}", file=sys.stderr)


class _Watch:
    """Watches drives until somebody ends it. `show` is what draws or prints: a context manager with interval()."""

    def __init__(self, drives, interval_ns, duration_ns, once, show):
        self.drives, self.interval_ns, self.once, self.show = drives, interval_ns, once, show
        self.duration_ns, self.ends_at = duration_ns, None
        self.lost = 0
        self.over = False
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> int:
        with self._signals(), self.show:
            while not self.over:
                gone = self._until_gone()
                left = [drive for drive in self.drives if drive not in gone]
                if gone and not left:
                    raise BlkreelError(f"{gone[0].path} is gone", "see what the kernel says of it: dmesg")
                if gone:
                    _notice(f"{gone[0].path} is gone; the others are watched on")
                self.drives = left
        return _NOT_TRUSTWORTHY if self.lost else 0

    def _until_gone(self):
        """Until it is over, or drives are taken away: these are returned."""
        nowhere = Nowhere()
        words = ["--programs", "auto", "--ring-bytes", str(CaptureOptions.ring_bytes)]
        for drive in self.drives:
            words += ["--device", f"{drive.major}:{drive.minor}"]
        helper = Helper(words, nowhere, self._stir, self.interval_ns, self._stir)
        try:
            self._wait_attached(helper)
            if self.duration_ns and self.ends_at is None:
                self.ends_at = time.monotonic() + self.duration_ns / 1e9
            while not (self.over or helper.end or helper.error):
                self._wait()
                self._tell(helper)
        finally:
            helper.stop()
            nowhere.close()
        if helper.error:
            raise helper.error
        if not self.once:
            self._tell(helper)  # what came after the last interval, so that nothing is missing from their sum
        return [drive for drive, entry in zip(self.drives, (helper.end or {}).get("drives", []), strict=False)
                if entry["gone"]]

    def _wait_attached(self, helper):
        deadline = time.monotonic() + _ATTACH_TIMEOUT_S
        while not (helper.attached or helper.error or self.over):
            if time.monotonic() > deadline:
                raise BlkreelError("the capture helper does not attach its programs", "see: blkreel doctor")
            self._wait()

    def _tell(self, helper):
        for interval in helper.intervals():
            self.lost = max(self.lost, interval.lost)
            paths = [drive.path for drive in self.drives]
            realtime_ns = helper.attached["realtime_ns"] + interval.end_ns
            self.show.interval(interval, paths, helper.names, realtime_ns)
            if self.once:
                self.over = True
                return

    def _wait(self):
        """For a word of the helper, a key, a signal or the end."""
        left_s = None if self.ends_at is None else self.ends_at - time.monotonic()
        if left_s is not None and left_s <= 0:
            self.over = True
            return
        watched = [self._woken] + ([self.show.keys] if self.show.keys is not None else [])
        ready, _, _ = select.select(watched, [], [], 1.0 if left_s is None else min(left_s, 1.0))
        if self._woken in ready:
            with suppress(BlockingIOError):
                os.read(self._woken, 4096)
        if self.show.keys in ready:
            self.over = self.show.press(os.read(self.show.keys, 1)) or self.over
        if self.show.suspends:
            self.show.suspend()

    def _stir(self):
        with suppress(BlockingIOError):
            os.write(self._wake, b"x")

    @contextmanager
    def _signals(self):
        def end(number, frame):
            self.over = True
            self._stir()

        def stop(number, frame):
            self.show.suspends = True
            self._stir()

        kept = {number: signal.signal(number, end) for number in _ENDS
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN}  # as nohup does
        if self.show.keys is not None:
            kept[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, stop)
        try:
            yield
        finally:
            for number, old in kept.items():
                signal.signal(number, old)


class _Lines:
    """Prints each interval; there is no terminal to take keys from."""

    keys = None
    suspends = False

    def __init__(self, interval):
        self.interval = interval

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        pass


def _json_lines():
    def show(interval, paths, names, realtime_ns):
        drives = [{"path": path, **figures(interval, index)} for index, path in enumerate(paths)]
        print(json.dumps({"version": 1, "begin_ns": interval.begin_ns, "end_ns": interval.end_ns,
                          "realtime_ns": realtime_ns, "lost": interval.lost, "drives": drives,
                          "processes": sorted(processes(interval, names), key=SORTS["depth"], reverse=True)}),
              flush=True)

    return _Lines(show)


def _plain_lines():
    def show(interval, paths, names, realtime_ns):
        for index, path in enumerate(paths):
            shown = figures(interval, index)
            times = ", ".join(f"{name} {'-' if shown[key] is None else format_ns(shown[key])}"
                              for name, key in (("mean", "mean_ns"), ("p50", "p50_ns"), ("p99", "p99_ns")))
            print(f"{interval.end_ns / 1e9:.1f} s {path}: read {shown['read_mb_s']:.1f} MB/s, write "
                  f"{shown['write_mb_s']:.1f} MB/s, {shown['iops']:,.0f} IOPS, depth {shown['depth']:.1f}, {times}, "
                  f"lost {format_count(interval.lost)}", flush=True)

    return _Lines(show)


def _once(console, sort):
    picture = Picture(console, sort)

    def show(interval, paths, names, realtime_ns):
        picture.take(interval, paths, names)
        console.print(picture)

    return _Lines(show)


class _Screen:
    """The whole terminal, which is as it was when this is left."""

    def __init__(self, console, sort):
        self.console, self.picture = console, Picture(console, sort)
        self.keys = sys.stdin.fileno() if sys.stdin.isatty() else None
        self.suspends = False
        self._as_it_was = None
        self._live = None
        self._began = time.monotonic()

    def __enter__(self):
        if self.keys is not None:
            self._as_it_was = termios.tcgetattr(self.keys)
        self._begin()
        return self

    def __exit__(self, *reason):
        self._end()

    def _begin(self):
        if self.keys is not None:
            tty.setcbreak(self.keys, termios.TCSADRAIN)
        self._live = Live(self, console=self.console, auto_refresh=False, screen=True)
        self._live.start(refresh=True)

    def _end(self):
        try:
            with suppress(OSError):
                self._live.stop()
        finally:
            if self._as_it_was is not None:
                with suppress(termios.error):
                    termios.tcsetattr(self.keys, termios.TCSADRAIN, self._as_it_was)

    def suspend(self):
        """Ctrl-Z: the shell gets its terminal as it was, and we ours when we go on."""
        self.suspends = False
        self._end()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._begin()

    def press(self, key: bytes) -> bool:
        """Whether it ends with that key; none at all is a terminal that is gone."""
        word = key.decode(errors="replace")
        if word in _KEYS:
            self.picture.sort = SORTS[_KEYS[word]]
            self._live.refresh()
        return word in ("q", "Q", "")

    def interval(self, interval, paths, names, realtime_ns):
        self.picture.take(interval, paths, names)
        self._live.refresh()

    def __rich__(self):
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        title = Text(f"blkreel top, {minutes}:{seconds:02}", style="bold")
        keys = Text(_HELP, style="dim", no_wrap=True, overflow="ellipsis")
        spacious = self.console.height >= _SPACIOUS_LINES
        gap = [Text()] if spacious else []
        self.picture.others_lines = 2 + 2 * len(gap)
        return Group(title, *gap, self.picture, *gap, keys)
