"""The picture of the live view: what the drives do now, on a terminal of any size."""

from collections import deque
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from blkreel.analysis.percentiles import PERCENTILES, enough
from blkreel.traces.live import Counts, Interval, percentile_ns
from blkreel.traces.units import format_bytes, format_count, format_ns

INTERVAL_NS = 1_000_000_000
HISTORY = 48  # intervals in a sparkline
_PROCESSES_SHOWN = 12
_BLOCKS, _ASCII = "▁▂▃▄▅▆▇█", "_.-=+*%#"
_WIDE, _MEDIUM, _NARROW, _TINY = 110, 84, 70, 56  # columns of a terminal below which something is left out


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
    """What is drawn of the last interval and of those before it, and what all of them are together.

    others_lines: of the terminal, which somebody else draws. note: what these figures cannot tell, and why.
    telemetry: what sensors told last, by their names in the run's telemetry.
    """

    def __init__(self, console: Console, sort: str = "depth", others_lines: int = 0):
        self.console, self.sort, self.others_lines = console, SORTS[sort], others_lines
        self.note = ""
        self.telemetry: dict[str, float] = {}
        self._interval: Interval | None = None
        self._drives, self._names = [], {}
        self._history: dict[str, deque] = {}
        self._so_far = {"read": Counts(), "write": Counts(), "other": Counts()}
        self._late = False
        self._latest_ns = 0

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
        self.note = interval.limits or self.note
        self.add(interval)

    def add(self, interval: Interval) -> None:
        """To what was done so far, and nothing else: of an interval too short to be drawn."""
        for (_, op), counts in interval.classes.items():
            self._so_far[op if op in self._so_far else "other"].add(counts)
        if interval.lateness is not None and interval.lateness.any():
            self._late, self._latest_ns = True, max(self._latest_ns, interval.latest_ns)

    def _keep(self, name, value):
        self._history.setdefault(name, deque(maxlen=HISTORY)).append(value)

    @property
    def has_some(self) -> bool:
        """Whether an interval has come."""
        return self._interval is not None

    def __rich__(self):
        if not self.has_some:
            return Text("waiting for the first interval ...", style="dim")
        bars, below = self._bars(), self._lines()
        # Of what does not fit the bars go first, then the lines between.
        if self.console.height - self.others_lines - len(bars) - len(below) >= 4:
            below = bars + below
        room = self.console.height - self.others_lines - len(below)
        gap = [Text()] if room >= 4 else []
        room -= len(gap)
        table, used = self._drive_table(max(1, room - 1))
        parts, room = [table], room - used
        if self._interval.threads and room >= 3:
            parts += [Text(), self._process_table(min(_PROCESSES_SHOWN, room - 2))]
        return Group(*parts, *gap, *below)

    def _drive_table(self, most):
        """Of at most so many lines below its head; and how many lines it has."""
        interval, width = self._interval, self.console.width
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2 if width >= _WIDE else 1, 0, 0))
        table.add_column("drive", no_wrap=True, overflow="ellipsis", max_width=24)
        times = ("mean", "p50", "p99") if width >= _NARROW else ("mean", "p99") if width >= _TINY else ("mean",)
        depth = ["depth"] if width >= _TINY else []
        for name in (*_rates(width), "IOPS", *depth, *(["in flight"] if width >= _MEDIUM else []), *times):
            table.add_column(name, justify="right", no_wrap=True)
        if width >= _WIDE:
            table.add_column("MB/s so far", no_wrap=True)
        entries = sorted(((figures(interval, index), name) for index, name in enumerate(self._drives)),
                         key=lambda entry: self.sort(entry[0]), reverse=True)
        fits = len(entries) if len(entries) <= most else most - 1
        for shown, name in entries[:fits]:
            cells = [name, _number(shown["read_mb_s"]), _number(shown["write_mb_s"]), _number(shown["iops"])]
            cells += [f"{shown['depth']:.1f}"] * len(depth)
            if width >= _MEDIUM:
                cells.append("?" if shown["in_flight"] is None else format_count(shown["in_flight"]))
            cells += [_time(shown[f"{name}_ns"]) for name in times]
            if width >= _WIDE:
                cells.append(self._spark(name, 24))
            table.add_row(*cells)
        if fits < len(entries):
            table.add_row(Text(f"and {len(entries) - fits} more", style="dim"))
        return table, 1 + table.row_count

    def _process_table(self, most):
        table = Table(box=None, pad_edge=False, header_style="bold",
                      padding=(0, 2 if self.console.width >= _WIDE else 1, 0, 0))
        table.add_column("process", no_wrap=True, overflow="ellipsis", max_width=24)
        depth = ["depth"] if self.console.width >= _TINY else []
        for name in ("pid", *_rates(self.console.width), "IOPS", *depth, "mean"):
            table.add_column(name, justify="right", no_wrap=True)
        entries = sorted(processes(self._interval, self._names), key=self.sort, reverse=True)
        for entry in entries[:most]:
            table.add_row(entry["process"], str(entry["pid"] or ""), _number(entry["read_mb_s"]),
                          _number(entry["write_mb_s"]), _number(entry["iops"]),
                          *[f"{entry['depth']:.1f}"] * len(depth), _time(entry["mean_ns"]))
        return table

    def _bars(self):
        last = {name: values[-1] for name, values in self._history.items()}
        lines = []
        for name, words in (("throughput", f"{_number(last['throughput'])} MB/s"), ("depth", f"{last['depth']:.1f}"),
                            ("latency", f"{_time(last['latency'] or None)} mean")):
            room = max(0, min(HISTORY, self.console.width - 27))
            lines.append(_line(name, f"{words:<14} {self._spark(name, room)}"))
        return lines

    def _lines(self):
        interval, lines = self._interval, []
        if self._late:
            here = interval.lateness
            told = here is not None and here.any()
            lines.append(_line("lateness", f"p99 {_time(percentile_ns(here, 99, 100) if told else None)}, at most "
                                           f"{_time(interval.latest_ns if told else None)} now, "
                                           f"{_time(self._latest_ns)} so far"))
        if heat := telemetry_words(self.telemetry):
            lines.append(_line("sensors", heat))
        lines.append(_line("so far", self._sum_words()))
        if errors := sum(counts.errors for counts in self._so_far.values()):
            lines.append(_line("errors", format_count(errors), "bold red"))
        lines.append(_line("lost", "?" if interval.lost is None else format_count(interval.lost),
                           "bold red" if interval.lost else ""))
        if self.note:
            lines.append(Text(self.note, style="dim", no_wrap=True, overflow="ellipsis"))
        return lines

    def _sum_words(self):
        """Of all intervals: `12,345 I/Os, 1.20 GB read, 340 MB written`."""
        done = self._so_far
        words = [f"{format_count(sum(counts.ops + counts.unseen for counts in done.values()))} I/Os"]
        words += [f"{format_bytes(done[op].bytes)} {word}" for op, word in (("read", "read"), ("write", "written"))]
        return ", ".join(words)

    def _spark(self, name, width):
        ascii_only = self.console.options.ascii_only
        return sparkline(list(self._history.get(name, ()))[-width:] if width else [], ascii_only).ljust(width)


def telemetry_words(values: dict[str, float]) -> str:
    """`41 C, 5.20 W, throttled` of what sensors told last; "" of nothing that concerns the drive."""
    heat = [f"{value:.0f} C" for name, value in sorted(values.items()) if name.startswith("temperature_c")]
    power = [f"{values['power_w']:.2f} W"] if "power_w" in values else []
    throttled = any(value for name, value in values.items() if name.partition(".")[0] == "throttling")
    return ", ".join([*heat, *power, *(["throttled"] if throttled else [])])


def _line(name, words, style=""):
    return Text(f"{name:<11}{words}", style=style, no_wrap=True, overflow="crop")


def _rates(width):
    return ("read MB/s", "write MB/s") if width >= _NARROW else ("rd MB/s", "wr MB/s") if width >= _TINY else (
        "rd MB", "wr MB")


def _number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _time(value_ns):
    return "-" if value_ns is None else format_ns(value_ns)
