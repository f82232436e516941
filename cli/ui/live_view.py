"""The live view: what drives and processes do now, drawn on a terminal of any size."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from blkreel.analysis.metrics.partials.distributions import PERCENTILES
from blkreel.common.printable import printable
from blkreel.common.system import read_kernel_text
from blkreel.common.units import counted, format_bytes, format_count, format_ns
from blkreel.common.verdict import enough
from blkreel.traces.live import Counts, Interval, percentile_ns

INTERVAL_NS = 1_000_000_000
HISTORY = 48  # intervals in a sparkline
_MAX_PROCESSES = 12
_BLOCKS, _ASCII = "▁▂▃▄▅▆▇█", "_.-=+*%#"
_WIDE, _MEDIUM, _NARROW, _TINY = 110, 84, 70, 56  # a narrower terminal gets fewer columns

ThreadNames = Mapping[int, tuple[int, str, str]]  # by thread: its process, its own name, the name of its process


class DriveMetrics(TypedDict):
    """Metrics of one interval. Latencies in ns of the I/Os that completed in it; MB/s of 10^6 bytes.

    depth: mean number of I/Os in flight, the sum of their latencies over the time. in_flight: at the end of the
    interval, None if unknown. p50_ns, p99_ns: None with fewer than 10 I/Os beyond the percentile. unseen_ops:
    completions that the kernel did not report.
    """

    ops: int
    read_ops: int
    write_ops: int
    read_bytes: int
    write_bytes: int
    read_mb_s: float
    write_mb_s: float
    iops: float
    depth: float
    in_flight: int | None
    mean_ns: float | None
    p50_ns: int | None
    p99_ns: int | None
    longest_ns: int | None
    errors: int
    unseen_ops: int


class ProcessMetrics(TypedDict):
    """I/Os of one process in one interval. depth: mean number of its I/Os in flight. pid: None for all others."""

    pid: int | None
    process: str
    ops: int
    iops: float
    read_mb_s: float
    write_mb_s: float
    depth: float
    mean_ns: float | None


def drive_metrics(interval: Interval, drive: int | None = None) -> DriveMetrics:
    """Metrics of one drive, by its number, or of all drives."""
    total, seconds = interval.counts(drive), interval.seconds
    read, write = interval.counts(drive, "read"), interval.counts(drive, "write")
    percentiles = {name: total.percentile_ns(*PERCENTILES[name]) if enough(total.ops, PERCENTILES[name]) else None
                   for name in ("p50", "p99")}
    return {
        "ops": total.ops, "read_ops": read.ops, "write_ops": write.ops,
        "read_bytes": read.bytes, "write_bytes": write.bytes,
        "read_mb_s": _rate(read.bytes, seconds) / 1e6, "write_mb_s": _rate(write.bytes, seconds) / 1e6,
        "iops": _rate(total.ops, seconds), "depth": interval.depth(drive),
        "in_flight": _in_flight(interval.in_flight if drive is None else interval.in_flight[drive:drive + 1]),
        "mean_ns": total.mean_ns, "p50_ns": percentiles["p50"], "p99_ns": percentiles["p99"],
        "longest_ns": total.longest_ns if total.ops else None,
        "errors": total.errors, "unseen_ops": total.unseen,
    }


def _in_flight(counts: Sequence[int | None]) -> int | None:
    numbers = [count for count in counts if count is not None]
    return sum(numbers) if numbers and len(numbers) == len(counts) else None


def process_metrics(interval: Interval, names: ThreadNames) -> list[ProcessMetrics]:
    """Metrics by process, with one entry for the threads that the interval does not list."""
    totals: dict[tuple[int | None, str], Sequence[int]] = {}
    for tid, *sums in interval.threads:
        pid, _, process = names.get(tid) or (tid, "", _thread_name(tid))
        totals[pid, process] = [total + more for total, more
                                in zip(totals.get((pid, process), (0, 0, 0, 0)), sums, strict=True)]
    if interval.other_threads:
        totals[None, "others"] = interval.other_threads[1:]
    seconds = interval.seconds
    return [{"pid": pid, "process": process, "ops": ops, "iops": _rate(ops, seconds),
             "read_mb_s": _rate(read_bytes, seconds) / 1e6, "write_mb_s": _rate(write_bytes, seconds) / 1e6,
             "depth": _rate(latency_ns / 1e9, seconds), "mean_ns": latency_ns / ops if ops else None}
            for (pid, process), (ops, read_bytes, write_bytes, latency_ns) in totals.items()]


def _thread_name(tid: int) -> str:
    try:
        return read_kernel_text(f"/proc/{tid}/comm")
    except OSError:
        return "?"


def _rate(count: float, seconds: float) -> float:
    return count / seconds if seconds else 0.0


_Entry = DriveMetrics | ProcessMetrics


def _throughput(entry: _Entry) -> float:
    return entry["read_mb_s"] + entry["write_mb_s"]


SORTS: dict[str, Callable[[Any], float]] = {
    "depth": lambda entry: entry["depth"],
    "throughput": _throughput,
    "read": lambda entry: entry["read_mb_s"],
    "write": lambda entry: entry["write_mb_s"],
    "iops": lambda entry: entry["iops"],
    "latency": lambda entry: entry["mean_ns"] or 0,
}


def sparkline(values: Sequence[float], ascii_only: bool = False) -> str:
    """The values as one line of bars, from 0 to the largest."""
    marks = _ASCII if ascii_only else _BLOCKS
    most = max(values, default=0)
    return "".join(marks[min(len(marks) - 1, int(value / most * len(marks)))] if most else marks[0] for value in values)


class LiveView:
    """Draws the latest interval, sparklines of the ones before, and totals since the start.

    reserved_lines: lines of the terminal that the caller draws itself. note: limits of the metrics, shown last.
    telemetry: the latest sensor values, by their names in the run's telemetry.
    """

    def __init__(self, console: Console, sort: str = "depth", reserved_lines: int = 0):
        self.console, self.sort, self.reserved_lines = console, SORTS[sort], reserved_lines
        self.note = ""
        self.telemetry: Mapping[str, float] = {}
        self._interval: Interval | None = None
        self._drives: Sequence[str] = []
        self._names: ThreadNames = {}
        self._history: dict[str, deque[float]] = {}
        self._totals = {"read": Counts(), "write": Counts(), "other": Counts()}
        self._has_lateness = False
        self._latest_ns = 0

    def set_interval(self, interval: Interval, drives: Sequence[str], names: ThreadNames) -> None:
        """Draw this interval from now on. drives: names to show, in the order of their numbers."""
        self._interval, self._drives, self._names = interval, drives, names
        for index, name in enumerate(drives):
            self._append(name, _throughput(drive_metrics(interval, index)))
        total = drive_metrics(interval)
        self._append("throughput", _throughput(total))
        self._append("latency", total["mean_ns"] or 0)
        self._append("depth", total["depth"])
        self.note = interval.limits or self.note
        self.add(interval)

    def add(self, interval: Interval) -> None:
        """Add an interval that is too short to draw to the totals."""
        for (_, op), counts in interval.classes.items():
            self._totals[op if op in self._totals else "other"].add(counts)
        if interval.lateness is not None and interval.lateness.any():
            self._has_lateness, self._latest_ns = True, max(self._latest_ns, interval.latest_ns)

    def _append(self, name: str, value: float) -> None:
        self._history.setdefault(name, deque(maxlen=HISTORY)).append(value)

    @property
    def has_interval(self) -> bool:
        return self._interval is not None

    def __rich__(self) -> RenderableType:
        if self._interval is None:
            return Text("waiting for the first interval ...", style="dim")
        bars, footer = self._bars(), self._footer(self._interval)
        # On a small terminal leave out the bars first, then the blank lines.
        if self.console.height - self.reserved_lines - len(bars) - len(footer) >= 4:
            footer = bars + footer
        room = self.console.height - self.reserved_lines - len(footer)
        gap = [Text()] if room >= 4 else []
        room -= len(gap)
        table = self._drive_table(self._interval, max(1, room - 1))
        parts: list[RenderableType] = [table]
        room -= 1 + table.row_count
        if self._interval.threads and room >= 3:
            parts += [Text(), self._process_table(self._interval, min(_MAX_PROCESSES, room - 2))]
        return Group(*parts, *gap, *footer)

    def _table(self, first: str, columns: Iterable[str]) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold",
                      padding=(0, 2 if self.console.width >= _WIDE else 1, 0, 0))
        table.add_column(first, no_wrap=True, overflow="ellipsis", max_width=24)
        for name in columns:
            table.add_column(name, justify="right", no_wrap=True)
        return table

    def _drive_table(self, interval: Interval, max_rows: int) -> Table:
        width = self.console.width
        times = ("mean", "p50", "p99") if width >= _NARROW else ("mean", "p99") if width >= _TINY else ("mean",)
        depth = ["depth"] if width >= _TINY else []
        in_flight = ["in flight"] if width >= _MEDIUM else []
        table = self._table("drive", (*_rate_heads(width), "IOPS", *depth, *in_flight, *times))
        if width >= _WIDE:
            table.add_column("MB/s over time", no_wrap=True)
        entries = sorted(((drive_metrics(interval, index), name) for index, name in enumerate(self._drives)),
                         key=lambda entry: self.sort(entry[0]), reverse=True)
        visible = len(entries) if len(entries) <= max_rows else max_rows - 1
        for metrics, name in entries[:visible]:
            cells: list[str | Text] = [Text(printable(name)), *_rate_cells(metrics),
                                       *[f"{metrics['depth']:.1f}"] * len(depth)]
            if in_flight:
                cells.append("?" if metrics["in_flight"] is None else format_count(metrics["in_flight"]))
            latencies = {"mean": metrics["mean_ns"], "p50": metrics["p50_ns"], "p99": metrics["p99_ns"]}
            cells += [_time(latencies[name]) for name in times]
            if width >= _WIDE:
                cells.append(self._sparkline(name, 24))
            table.add_row(*cells)
        if visible < len(entries):
            table.add_row(Text(f"and {len(entries) - visible} more", style="dim"))
        return table

    def _process_table(self, interval: Interval, max_rows: int) -> Table:
        depth = ["depth"] if self.console.width >= _TINY else []
        table = self._table("process", ("pid", *_rate_heads(self.console.width), "IOPS", *depth, "mean"))
        for entry in sorted(process_metrics(interval, self._names), key=self.sort, reverse=True)[:max_rows]:
            table.add_row(Text(printable(entry["process"])), str(entry["pid"] or ""), *_rate_cells(entry),
                          *[f"{entry['depth']:.1f}"] * len(depth), _time(entry["mean_ns"]))
        return table

    def _bars(self) -> list[Text]:
        last = {name: values[-1] for name, values in self._history.items()}
        width = max(0, min(HISTORY, self.console.width - 27))
        return [_line(name, f"{words:<14} {self._sparkline(name, width)}") for name, words in (
            ("throughput", f"{_number(last['throughput'])} MB/s"), ("depth", f"{last['depth']:.1f}"),
            ("latency", f"{_time(last['latency'] or None)} mean"))]

    def _footer(self, interval: Interval) -> list[Text]:
        lines = []
        if self._has_lateness:
            late = interval.lateness if interval.lateness is not None and interval.lateness.any() else None
            p99_ns = None if late is None else percentile_ns(late, 99, 100)
            max_ns = None if late is None else interval.latest_ns
            lines.append(_line("lateness", f"p99 {_time(p99_ns)}, max {_time(max_ns)}, max so far "
                                           f"{_time(self._latest_ns)}"))
        if sensors := format_sensors(self.telemetry):
            lines.append(_line("sensors", sensors))
        ios = sum(counts.ops + counts.unseen for counts in self._totals.values())
        lines.append(_line("so far", f"{counted(ios, 'I/O')}, {format_bytes(self._totals['read'].bytes)} read, "
                                     f"{format_bytes(self._totals['write'].bytes)} written"))
        if errors := sum(counts.errors for counts in self._totals.values()):
            lines.append(_line("errors", format_count(errors), "bold red"))
        lines.append(_line("lost", "?" if interval.lost is None else format_count(interval.lost),
                           "bold red" if interval.lost else ""))
        if self.note:
            lines.append(Text(self.note, style="dim", no_wrap=True, overflow="ellipsis"))
        return lines

    def _sparkline(self, name: str, width: int) -> str:
        values = list(self._history.get(name, ()))[-width:] if width else []
        return sparkline(values, self.console.options.ascii_only).ljust(width)


def format_sensors(values: Mapping[str, float]) -> str:
    """`41 C, 5.20 W, throttled`; "" without a sensor of the drive."""
    parts = [f"{value:.0f} C" for name, value in sorted(values.items()) if name.startswith("temperature_c")]
    if "power_w" in values:
        parts.append(f"{values['power_w']:.2f} W")
    if any(value for name, value in values.items() if name.partition(".")[0] == "throttling"):
        parts.append("throttled")
    return ", ".join(parts)


def _line(name: str, words: str, style: str = "") -> Text:
    return Text(f"{name:<11}{words}", style=style, no_wrap=True, overflow="ellipsis")


def _rate_heads(width: int) -> tuple[str, str]:
    return ("read MB/s", "write MB/s") if width >= _NARROW else ("rd MB/s", "wr MB/s") if width >= _TINY else (
        "rd MB", "wr MB")


def _rate_cells(entry: _Entry) -> list[str]:
    return [_number(entry["read_mb_s"]), _number(entry["write_mb_s"]), _number(entry["iops"])]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _time(value_ns: float | None) -> str:
    return "-" if value_ns is None else format_ns(value_ns)
