"""slc-cache: how much a drive takes fast, how fast, and how much of that a rest brings back."""

from dataclasses import dataclass

import numpy as np

from .. import numbers
from ..summary import mb_per_s
from .change_point import FEWEST, SLOWER, Change, find_change
from .directory import Runs, Test, arrays
from .parts import Content, by_state, in_state, over_repeats, ratio, series, table, with_spread
from .sensors import sensors_of
from .tally import COLUMNS, POWER_COLUMNS, Tally, energy_note

ROLE = "fill"
SAMPLE_NS = 500_000_000
MOST_SAMPLES = 2000
ALIKE = 0.2
MOST_PIECES = 1 << 20


class Pieces:
    """Each write's bytes, latency and completion, in the order of issue. Beyond MOST_PIECES neighbours become one, so
    that memory stays bounded; a piece is then some MiB of terabytes."""

    def __init__(self):
        self.writes = 1  # in a piece
        self._chunks, self._rows = [], 0
        self._rest = np.empty((0, 3), np.int64)

    def add(self, length_bytes, latency_ns, complete_ns) -> None:
        rows = np.column_stack([length_bytes, latency_ns, complete_ns]).astype(np.int64)
        rows = np.concatenate([self._rest, rows])
        whole = len(rows) // self.writes * self.writes
        self._rest = rows[whole:]
        self._append(_joined(rows[:whole], self.writes))
        while self._rows > MOST_PIECES:
            every = np.concatenate(self._chunks)
            even = len(every) // 2 * 2
            self._chunks, self._rows = [], 0
            self.writes *= 2
            self._append(_joined(every[:even], 2))
            self._append(every[even:])  # half a piece now and then changes nothing

    def _append(self, pieces):
        if len(pieces):
            self._chunks.append(pieces)
            self._rows += len(pieces)

    def table(self) -> np.ndarray:
        """(bytes, latency_ns, complete_ns) rows; the last piece may be of fewer writes."""
        rest = _joined(self._rest, max(1, len(self._rest)))
        return np.concatenate([*self._chunks, rest, np.empty((0, 3), np.int64)])


def _joined(rows, together):
    if together == 1 or not len(rows):
        return rows
    groups = rows.reshape(-1, together, 3)
    return np.column_stack([groups[:, :, 0].sum(axis=1), groups[:, :, 1].sum(axis=1), groups[:, :, 2].max(axis=1)])


@dataclass(frozen=True)
class Measured:
    """fast_bytes, before_mb_s, after_mb_s: None where there is no change. samples: bytes written in each width_ns."""

    sums: Tally
    change: Change
    fast_bytes: int | None
    fast_ns: int | None
    before_mb_s: float | None
    after_mb_s: float | None
    samples: np.ndarray
    width_ns: int


def _measure(step, trace):
    sums, pieces = Tally(sensors_of(step.directory)), Pieces()
    samples, width_ns = np.zeros(0, np.int64), SAMPLE_NS
    for columns in arrays(trace, COLUMNS):
        sums.feed(columns)
        written = (columns["op"] == 1) & (columns["latency_ns"] >= 0)
        length_bytes, latency_ns = columns["length_bytes"][written], columns["latency_ns"][written]
        complete_ns = columns["submit_ns"][written] + latency_ns
        if not len(complete_ns):
            continue
        pieces.add(length_bytes, latency_ns, complete_ns)
        while (int(complete_ns.max()) - sums.begin_ns) // width_ns >= MOST_SAMPLES:
            samples = np.pad(samples, (0, len(samples) % 2)).reshape(-1, 2).sum(axis=1)
            width_ns *= 2
        where = (complete_ns - sums.begin_ns) // width_ns
        samples = np.pad(samples, (0, max(0, int(where.max()) + 1 - len(samples))))
        np.add.at(samples, where, length_bytes)
    length_bytes, latency_ns, complete_ns = pieces.table().T
    change = find_change(latency_ns / length_bytes)
    if change.at is None:
        return Measured(sums, change, None, None, None, None, samples, width_ns)
    fast_bytes, fast_end_ns = int(length_bytes[:change.at].sum()), int(complete_ns[:change.at].max())
    return Measured(sums, change, fast_bytes, fast_end_ns - sums.begin_ns,
                    mb_per_s(fast_bytes, fast_end_ns - sums.begin_ns),
                    mb_per_s(int(length_bytes[change.at:].sum()), sums.end_ns - fast_end_ns), samples, width_ns)


def content(test: Test, runs: Runs) -> Content:
    """Labels: state, rest_ns (before the fill; 0 for the first), repeat."""
    found = runs.measured(ROLE, _measure, number="rest_ns")
    shown = Content(figures={"states": {}}, method=[*METHOD, energy_note([each.sums for _, each in found])])
    for state, own in by_state(found).items():
        groups = {}
        for step, each in own:
            groups.setdefault(step.labels["rest_ns"], []).append(each)
        in_order = [each for rest_ns in sorted(groups) for each in groups[rest_ns]]
        rows = [_row(rest_ns, groups[rest_ns], groups.get(0, []), in_order) for rest_ns in sorted(groups)]
        shown.figures["states"][state] = {"fills": {_key(row["rest_ns"]): row for row in rows},
                                          "fast_bytes": rows[0]["fast_bytes"]}
        shown.tables.append(table(in_state("Fast part, by the rest before it", state), _COLUMNS, rows))
        shown.series += [_rate(state, rest_ns, groups[rest_ns][0]) for rest_ns in sorted(groups)
                         if len(groups[rest_ns][0].samples)]
    return shown


def _key(rest_ns):
    """A fill's name in the figures: first, after-30s."""
    return f"after-{numbers.setting(rest_ns).replace(' ', '').replace('.', '-')}" if rest_ns else "first"


def _rate(state, rest_ns, each: Measured):
    title = "First fill" if rest_ns == 0 else f"After a rest of {numbers.setting(rest_ns)}"
    whole = each.samples[:-1] if len(each.samples) > 1 else each.samples  # the last bin is cut off
    return series(
        f"{in_state(title, state)}: MB/s in bins of {each.width_ns / 1e9:g} s", ("time", "s"), ("Throughput", "MB/s"),
        [("writes", [index * each.width_ns / 1e9 for index in range(len(whole))],
          (whole * (1000 / each.width_ns)).tolist())], what="rate", state=state, rest_ns=rest_ns,
        width_ns=each.width_ns)


def _fast_bytes(repeats):
    return over_repeats("value", [each.fast_bytes for each in repeats])["value"] if repeats else None


def _unchanged(each: Measured, fills: list[Measured]):
    """Why there is no size: and, where another fill tells what is fast and slow, which of them all of this was."""
    told, known = "", [one for one in fills if one.change.at is not None]
    if known and each.sums.mb_s:
        for what, speed in (("fast", known[0].before_mb_s), ("slow", known[0].after_mb_s)):
            if abs(each.sums.mb_s - speed) <= ALIKE * speed:
                told = f", all of it was {what}"
    return f"no change found{told}: {each.change.why}"


def _row(rest_ns, repeats: list[Measured], first: list[Measured], fills: list[Measured]):
    powers = [each.sums.power_figures() for each in repeats]
    why = dict(next((power["why"] for power in powers if "why" in power), {}))
    gone = next((each for each in repeats if each.change.at is None), None)
    if gone is not None:
        why |= dict.fromkeys(("fast_bytes", "before_mb_s", "after_mb_s"), _unchanged(gone, fills))
    fresh = _fast_bytes(first)
    fast = over_repeats("fast_bytes", [each.fast_bytes for each in repeats])
    return {"rest_ns": rest_ns, **fast, "of_first": ratio(fast["fast_bytes"], fresh) if rest_ns else None,
            **over_repeats("before_mb_s", [each.before_mb_s for each in repeats]),
            **over_repeats("after_mb_s", [each.after_mb_s for each in repeats]),
            "mean_mb_s": over_repeats("value", [each.sums.mb_s for each in repeats])["value"],
            "written_bytes": sum(each.sums.writes.bytes for each in repeats) // len(repeats),
            **over_repeats("average_w", [power["average_w"] for power in powers]),
            **over_repeats("mb_per_j", [power["mb_per_j"] for power in powers]), "n": len(repeats), "why": why}


_COLUMNS = [("rest_ns", "Rest before", "ns"), *with_spread([
    ("fast_bytes", "Fast part", "bytes"), ("before_mb_s", "Speed in it", "MB/s"),
    ("after_mb_s", "Speed behind", "MB/s")]),
    ("of_first", "Of the first", ""), ("mean_mb_s", "Overall", "MB/s"), ("written_bytes", "Written", "bytes"),
    *with_spread(POWER_COLUMNS), ("n", "n", "")]

METHOD = [
    ("Size of the fast part", "The bytes written before the change point: the cut of the series of writes that leaves "
     "the least sum of squares of ln(latency / bytes) around a mean on each side, the highest and lowest half "
     "percent brought to the next. All cuts are looked at, so it is exact to a write, whatever the sampling (D). Of "
     "several falls the first counts. What the drive moves out of its cache meanwhile counts as taken fast: this is "
     "what an owner can write at speed, not the size of a memory."),
    ("No change found", f"Where the second part is not at least {SLOWER:g} times as slow; where it differs no more "
     "than chance would have it (k (n − k) / n · difference² under 50 variances); where a straight decline explains "
     f"the writes better than a jump; or where a part has fewer than {FEWEST} writes or half a percent of them (D)."),
    ("Speeds", "Bytes / time: from the first submit to the completion of the last fast write, and from there to the "
     "end."),
    ("Rate over time", "Bytes completed in bins of 0.5 s, for the chart only; twice as wide again and again where "
     f"more than {MOST_SAMPLES} would be needed."),
]
