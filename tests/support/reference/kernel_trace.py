"""I/O of a drive as recorded by kernel tracing, read without blkreel code."""

import math
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

# Asked for: as the program asked, before the kernel cuts it up for the drive. Done: maybe in parts.
ASKED, DONE = "block_bio_queue", "block_rq_complete"
_LINE = re.compile(rf" (\d+)\.(\d{{6}}): ({ASKED}|{DONE}): \S+ (\w+) (?:\(.*?\) )?(\d+) \+ (\d+) (?:\[(\S+)\])?")
# What io_uring could not hand over at once, since it had to be cut up or to wait, threads so called hand over again.
_AGAIN = "iou-wrk-"
# The text of a trace has microseconds, cut off.
CUT_NS = 1000


@dataclass(frozen=True)
class Seen:
    """Arrays. kind: R, W, D; flushes alone, which carry nothing, are left out. done_*: of completions, which may be
    parts of what was asked for."""

    time_ns: np.ndarray
    kind: np.ndarray
    offset: np.ndarray
    length: np.ndarray
    done_ns: np.ndarray
    done_kind: np.ndarray
    done_length: np.ndarray

    def of(self, kinds: str) -> "Seen":
        return self._chosen(np.isin(self.kind, list(kinds)), np.isin(self.done_kind, list(kinds)))

    def between(self, start_ns, end_ns) -> "Seen":
        return self._chosen((self.time_ns >= start_ns) & (self.time_ns < end_ns),
                            (self.done_ns >= start_ns) & (self.done_ns < end_ns))

    def first(self, count) -> "Seen":
        return self._chosen(slice(0, count), slice(None))

    def _chosen(self, asked, done):
        return Seen(self.time_ns[asked], self.kind[asked], self.offset[asked], self.length[asked],
                    self.done_ns[done], self.done_kind[done], self.done_length[done])

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def end(self):
        return self.offset + self.length

    @property
    def active_ns(self) -> int:
        return int(self.done_ns.max() - self.time_ns.min())

    def outstanding(self) -> int:
        """Most bytes outstanding at a time."""
        at = np.concatenate([self.time_ns, self.done_ns])
        change = np.concatenate([self.length, -self.done_length])
        # In the same microsecond a completion goes before what it made room for.
        order = np.lexsort((change, at))
        return int(np.cumsum(change[order]).max())


class Watch:
    """The trace of one drive, from its making on. instance: a directory of the kernel's tracing, of the test's own."""

    def __init__(self, instance: Path, drive):
        self._instance = instance
        device = Path(drive).stat().st_rdev
        (instance / "buffer_size_kb").write_text("65536")
        (instance / "trace_clock").write_text("mono")
        for event in (ASKED, DONE):
            (self._event(event) / "filter").write_text(f"dev == {os.major(device) << 20 | os.minor(device)}")
            (self._event(event) / "enable").write_text("1")

    def seen(self) -> Seen:
        """What has come since the last call. Times are of the monotonic clock."""
        for event in (ASKED, DONE):
            (self._event(event) / "enable").write_text("0")
        for counts in self._instance.glob("per_cpu/cpu*/stats"):
            lost = re.findall(r"(?:overrun|dropped events): (\d+)", counts.read_text())
            assert set(lost) <= {"0"}, f"the kernel's trace lost events: {counts.read_text()}"
        found, tried = {ASKED: [], DONE: []}, Counter()
        with (self._instance / "trace").open() as lines:
            for line in lines:
                if match := _LINE.search(line):
                    seconds, micros, event, kind, sector, sectors, thread = match.groups()
                    if sectors == "0":
                        continue
                    if event == ASKED:
                        place = (kind, sector, sectors)
                        again = thread.startswith(_AGAIN)
                        if again and tried[place]:
                            tried[place] -= 1
                            continue
                        tried[place] += not again
                    found[event].append((int(seconds) * 10**9 + int(micros) * 1000, _letter(kind), int(sector) * 512,
                                         int(sectors) * 512))
        (self._instance / "trace").write_text("")
        for event in (ASKED, DONE):
            (self._event(event) / "enable").write_text("1")
        asked, done = (list(zip(*found[event], strict=True)) or [(), (), (), ()] for event in (ASKED, DONE))
        return Seen(np.array(asked[0], "i8"), np.array(asked[1], "U1"), np.array(asked[2], "i8"),
                    np.array(asked[3], "i8"), np.array(done[0], "i8"), np.array(done[1], "U1"), np.array(done[3], "i8"))

    def _event(self, event) -> Path:
        return self._instance / "events/block" / event


def _letter(kind) -> str:
    """R, W or D: FWS is a write with a flush before it."""
    return next((letter for letter in kind if letter in "RWD"), kind[0])


def assert_random(bits, what) -> None:
    """Runs test (Wald, Wolfowitz): as many runs of equal values as in a random order, within 4 standard deviations."""
    n, m = int(np.count_nonzero(bits)), int(np.count_nonzero(~bits))
    assert n + m >= 200, f"{what}: too few to tell"
    runs = 1 + int(np.count_nonzero(bits[1:] != bits[:-1]))
    mean = 1 + 2 * n * m / (n + m)
    z = (runs - mean) / math.sqrt((mean - 1) * (mean - 2) / (n + m - 1))
    assert abs(z) < 4, f"{what}: {runs} runs, {mean:.0f} expected, z {z:.1f}"


def assert_random_places(seen: Seen, block: int, start: int, end: int) -> None:
    """Whole blocks, inside, spread evenly over sixteen parts (chi-square), in random order about their median."""
    assert set(seen.length.tolist()) == {block}
    assert ((seen.offset - start) % block == 0).all()
    assert seen.offset.min() >= start and seen.end.max() <= end
    assert len(seen) >= 200
    blocks = (end - start) // block
    number = (seen.offset - start) // block
    bounds = np.arange(17) * blocks // 16
    expected = np.diff(bounds) / blocks * len(seen)
    chi = ((np.histogram(number, bounds)[0] - expected) ** 2 / expected).sum()
    # 15 degrees of freedom; above 55 by chance once in a million.
    assert chi < 55, f"places are not spread evenly: {chi:.0f}"
    assert_random(number > np.median(number), "places")


def assert_one_after_another(seen: Seen, block: int, start: int, end: int) -> None:
    """Whole blocks from the start on, and around when the last whole one is through."""
    assert set(seen.length.tolist()) == {block}
    blocks = (end - start) // block
    assert ((seen.offset - start) // block == np.arange(len(seen)) % blocks).all()
    assert ((seen.offset - start) % block == 0).all()
