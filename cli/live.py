"""The live view of a capture, a replay and `blkreel top`: what the drives do now, on a terminal.

It must never slow or end what it shows: whatever goes wrong in here ends the view, and nothing else.
"""

import sys
import time
from collections import deque
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from blkreel.analysis.percentiles import PERCENTILES, enough
from blkreel.cli.progress import line_task
from blkreel.traces.live import Interval, RunCounter, percentile_ns
from blkreel.traces.units import format_count, format_ns

INTERVAL_NS = 1_000_000_000
HISTORY = 48  # intervals in a sparkline
_REFRESH_EVERY_S = 0.5
_PROCESSES_SHOWN = 12
_BLOCKS, _ASCII = "▁▂▃▄▅▆▇█", "_.-=+*%#"
_WIDE, _MEDIUM, _NARROW = 110, 84, 70  # columns of a terminal below which something is left out


def figures(interval: Interval, drive: int | None = None) -> dict:
    """Of one drive of an interval, or of all: MB/s of 10^6 bytes, latencies in ns of what completed in it.

    depth: mean number outstanding, sum of latencies over time. in_flight: outstanding when it was told, None where
    not known. A percentile with fewer than 10 I/Os beyond it is None.
    """
    everything, seconds = interval.counts(drive), interval.seconds
    read, write = interval.counts(drive, "read"), interval.counts(drive, "write")
    shown = {name: everything.percentile_ns(*PERCENTILES[name]) if enough(everything.ops, PERCENTILES[name]) else None
             for name in ("p50", "p99")}
    known = interval.in_flight if drive is None else interval.in_flight[drive:drive + 1]
    return {
        "ops": everything.ops, "read_ops": read.ops, "write_ops": write.ops,
        "read_bytes": read.bytes, "write_bytes": write.bytes,
        "read_mb_s": _rate(read.bytes, seconds) / 1e6, "write_mb_s": _rate(write.bytes, seconds) / 1e6,
        "iops": _rate(everything.ops, seconds), "depth": interval.depth(drive),
        "in_flight": None if not known or None in known else sum(known),
        "mean_ns": everything.mean_ns, "p50_ns": shown["p50"], "p99_ns": shown["p99"],
        "longest_ns": everything.longest_ns if everything.ops else None,
        "errors": everything.errors, "unseen_ops": everything.unseen,
    }


def processes(interval: Interval, names: dict[int, tuple[int, str, str]]) -> list[dict]:
    """What each process had the drives do. depth: mean number of its I/Os outstanding; the rest is one without pid."""
    found: dict[tuple, list[int]] = {}
    for tid, *sums in interval.threads:
        pid, _, process = names.get(tid) or _ask_kernel(tid)
        mine = found.setdefault((pid, process), [0] * 4)
        mine[:] = [one + more for one, more in zip(mine, sums, strict=True)]
    if interval.others:
        found[None, "others"] = list(interval.others[1:])
    seconds = interval.seconds
    return [{"pid": pid, "process": process, "ops": ops, "iops": _rate(ops, seconds),
             "read_mb_s": _rate(read_bytes, seconds) / 1e6, "write_mb_s": _rate(write_bytes, seconds) / 1e6,
             "depth": latency_ns / 1e9 / seconds if seconds else 0.0, "mean_ns": latency_ns / ops if ops else None}
            for (pid, process), (ops, read_bytes, write_bytes, latency_ns) in found.items()]


def _ask_kernel(tid):
    """Of a thread that has not been named: as long as it lives, the kernel knows."""
    try:
        return tid, "", Path(f"/proc/{tid}/comm").read_text().strip()
    except OSError:
        return tid, "", "?"


def _rate(count, seconds):
    return count / seconds if seconds else 0.0


SORTS = {
    "depth": lambda entry: entry["depth"],
    "throughput": lambda entry: entry["read_mb_s"] + entry["write_mb_s"],
    "read": lambda entry: entry["read_mb_s"],
    "write": lambda entry: entry["write_mb_s"],
    "iops": lambda entry: entry["iops"],
    "latency": lambda entry: entry["mean_ns"] or 0,
}


def sparkline(values, ascii_only: bool = False) -> str:
    """The values as one line of bars, from 0 to the largest."""
    marks = _ASCII if ascii_only else _BLOCKS
    most = max(values, default=0)
    return "".join(marks[min(len(marks) - 1, int(value / most * len(marks)))] if most else marks[0] for value in values)


class Picture:
    """What is drawn of the last interval and of those before it."""

    def __init__(self, console: Console, sort: str = "depth"):
        self.console, self.sort = console, SORTS[sort]
        self._interval: Interval | None = None
        self._drives, self._names = [], {}
        self._history: dict[str, deque] = {}

    def take(self, interval: Interval, drives: list[str], names: dict) -> None:
        """drives: names to show, in the order of their numbers."""
        self._interval, self._drives, self._names = interval, drives, names
        for index, name in enumerate(drives):
            shown = figures(interval, index)
            self._keep(name, shown["read_mb_s"] + shown["write_mb_s"])
        everything = figures(interval)
        self._keep("throughput", everything["read_mb_s"] + everything["write_mb_s"])
        self._keep("latency", everything["mean_ns"] or 0)
        self._keep("depth", everything["depth"])

    def _keep(self, name, value):
        self._history.setdefault(name, deque(maxlen=HISTORY)).append(value)

    @property
    def has_some(self) -> bool:
        """Whether an interval has come."""
        return self._interval is not None

    def __rich__(self):
        if not self.has_some:
            return Text("waiting for the first interval ...", style="dim")
        parts = [self._drive_table()]
        if self._interval.threads:
            parts.append(self._process_table())
        parts.append(self._sparklines())
        return Group(*parts)

    def _drive_table(self):
        interval, width = self._interval, self.console.width
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2 if width >= _WIDE else 1, 0, 0))
        table.add_column("drive", no_wrap=True, overflow="ellipsis", max_width=24)
        times = ("mean", "p50", "p99") if width >= _NARROW else ("mean", "p99")
        for name in (*_rates(width), "IOPS", "depth", *(["in flight"] if width >= _MEDIUM else []), *times):
            table.add_column(name, justify="right", no_wrap=True)
        if width >= _WIDE:
            table.add_column("MB/s so far", no_wrap=True)
        entries = sorted(((figures(interval, index), name) for index, name in enumerate(self._drives)),
                         key=lambda entry: self.sort(entry[0]), reverse=True)
        for shown, name in entries:
            cells = [name, _number(shown["read_mb_s"]), _number(shown["write_mb_s"]), _number(shown["iops"]),
                     f"{shown['depth']:.1f}"]
            if width >= _MEDIUM:
                cells.append("?" if shown["in_flight"] is None else format_count(shown["in_flight"]))
            cells += [_time(shown[f"{name}_ns"]) for name in times]
            if width >= _WIDE:
                cells.append(self._spark(name, 24))
            table.add_row(*cells)
        return table

    def _process_table(self):
        table = Table(box=None, pad_edge=False, header_style="bold",
                      padding=(0, 2 if self.console.width >= _WIDE else 1, 0, 0))
        table.add_column("process", no_wrap=True, overflow="ellipsis", max_width=24)
        for name in ("pid", *_rates(self.console.width), "IOPS", "depth", "mean"):
            table.add_column(name, justify="right", no_wrap=True)
        entries = sorted(processes(self._interval, self._names), key=self.sort, reverse=True)
        for entry in entries[:_PROCESSES_SHOWN]:
            table.add_row(entry["process"], str(entry["pid"] or ""), _number(entry["read_mb_s"]),
                          _number(entry["write_mb_s"]), _number(entry["iops"]), f"{entry['depth']:.1f}",
                          _time(entry["mean_ns"]))
        return Group(Text(), table)

    def _sparklines(self):
        interval = self._interval
        lines = [Text()]
        last = {name: values[-1] for name, values in self._history.items()}
        for name, words in (("throughput", f"{_number(last['throughput'])} MB/s"), ("depth", f"{last['depth']:.1f}"),
                            ("latency", f"{_time(last['latency'] or None)} mean")):
            room = max(0, min(HISTORY, self.console.width - 27))
            lines.append(Text(f"{name:<11}{words:<14} {self._spark(name, room)}", no_wrap=True, overflow="crop"))
        if interval.lateness is not None and interval.lateness.any():
            lines.append(Text(f"{'lateness':<11}p99 {_time(percentile_ns(interval.lateness, 99, 100))}, "
                              f"at most {_time(interval.latest_ns)} in the last interval"))
        lines.append(Text(f"{'lost':<11}{format_count(interval.lost)}", style="bold red" if interval.lost else ""))
        return Group(*lines)

    def _spark(self, name, width):
        ascii_only = self.console.options.ascii_only
        return sparkline(list(self._history.get(name, ()))[-width:] if width else [], ascii_only).ljust(width)


def _rates(width):
    return ("read MB/s", "write MB/s") if width >= _NARROW else ("rd MB/s", "wr MB/s")


def _number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _time(value_ns):
    return "-" if value_ns is None else format_ns(value_ns)


class LiveTask:
    """What a capture or a replay reports to; as progress.Task, with take_rows and take_note for a replay besides."""

    def __init__(self, console: Console, step: str, total: float | None, drives: list[str]):
        self.step, self.total, self._drives = step, total, drives
        self._picture, self._counter = Picture(console), RunCounter()
        self._began = self._drawn_at = self._taken_at = time.monotonic()
        self._done, self._detail, self._outstanding = 0.0, "", None
        self._live = Live(self, console=console, auto_refresh=False, transient=True)
        self._lines = None  # what takes over where the view has ended

    def update(self, done: float, detail: str = "") -> None:
        self._done, self._detail = done, detail
        if self._lines:
            self._lines.update(done, detail)
        self._safely(self._draw)

    def show(self, interval: Interval, drives: list[str], names: dict) -> None:
        """An interval of a capture."""
        self._safely(lambda: self._picture.take(interval, drives, names))

    def take_rows(self, rows) -> None:
        """Rows of a replay, as the engine gives them."""
        self._safely(lambda: self._counter.add(rows))

    def take_note(self, note: dict) -> None:
        """The engine's own word, about twice a second also where no row comes."""
        self._safely(lambda: self._take_note(note))

    def _take_note(self, note):
        self._outstanding = note.get("outstanding")
        now = time.monotonic()
        if now - self._taken_at >= INTERVAL_NS / 1e9:
            interval = self._counter.take(int((now - self._taken_at) * 1e9))
            interval.in_flight = [self._outstanding] if len(self._drives) == 1 else []
            self._taken_at = now
            self._picture.take(interval, self._drives, {})
        self._draw()

    def _draw(self):
        if time.monotonic() - self._drawn_at >= _REFRESH_EVERY_S:
            self._drawn_at = time.monotonic()
            self._live.refresh()

    def __rich__(self):
        if self._lines:
            return Text()  # what could not be drawn is not drawn once more when it ends
        headline = Text(self._headline(), style="bold", no_wrap=True, overflow="ellipsis")
        return Group(headline, Text(), self._picture) if self._picture.has_some else headline

    def _headline(self):
        elapsed_s = time.monotonic() - self._began
        parts = [f"{self.step}, {_clock(elapsed_s)}"]
        if self.total:
            parts.append(f"{min(100, 100 * self._done / self.total):.0f} %")
            if self._done:
                parts.append(f"{_clock(elapsed_s * max(0, self.total - self._done) / self._done)} left")
        return ", ".join(parts + ([self._detail] if self._detail else []))

    def _safely(self, act):
        if self._lines:
            return
        try:
            act()
        except Exception as error:  # noqa: BLE001 - whatever it is: what is shown goes on
            self._lines = line_task(self.step, self.total)
            self._stop()
            with suppress(OSError, ValueError):  # the terminal may be gone
                print(f"blkreel: the live view has ended ({type(error).__name__}: {error}); {self.step} goes on",
                      file=sys.stderr)

    def _stop(self):
        with suppress(Exception):
            self._live.stop()

    def __enter__(self):
        self._safely(lambda: self._live.start(refresh=True))
        return self

    def __exit__(self, *reason):
        self._stop()


def _clock(seconds):
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


@contextmanager
def live_progress(step: str, total: float | None = None, drives: list[str] = ()):
    """As progress.progress, with a picture of the drives on a terminal; plain lines elsewhere.

    drives: of a replay, what they are called.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield line_task(step, total)
        return
    with LiveTask(console, step, total, list(drives)) as task:
        yield task
