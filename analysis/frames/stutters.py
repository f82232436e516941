"""Which long frames waited for I/O, and for how long.

A stutter is a frame that takes more than LONG times the usual frame time around it (D). It waited for I/O if threads
whose waits make frames long waited for at least half of what it took beyond the usual time. A thread that waits just
as long while the frames go on smoothly does not hold them up, unless it takes part in each frame, as one that loads
between two pictures of a loading screen: however much it waits for, it never waits as a frame ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .clock import Alignment, fitted, shifts_ns
from .waits import ThreadWaits, Times, Waits

LONG = 2.5  # times the usual frame time, as CapFrameX counts stutters (there of a moving average)
_USUAL_NS = 10**9  # the usual frame time is the median of about a second
_LEAST_SHARE = 0.5  # of the time beyond the usual
_EXONERATED = 2  # times as many smooth stretches with such a wait as stutters
_WINDOW_STEP = 1.25  # lengths of stretches are rounded to powers of this
_FIT_FROM_NS = 50_000_000  # a more exact alignment is not fitted
_FIT_STEP_NS, _FIT_NEAR_NS = 2_000_000, 40_000_000
_FIT_STALLS, _FIT_LESS = 3, 0.7
# A thread takes part in the frames if it waits at no more of their ends than this share of those at which it would wait
# by chance, which are at least so many.
_PART_EXPECTED, _PART_SHARE = 10, 0.05
_PART_FRAMES, _PART_SHIFTS = 2_000, 401

Causes = npt.NDArray[np.int8]
IO, OTHER, UNCLEAR = 0, 1, 2
CAUSE_NAMES = ("io", "other", "unclear")


@dataclass(frozen=True)
class FrameWait:
    """What a frame waited for. row: of the trace. begin_ns, end_ns: within the frame, in time of the trace."""

    row: int
    tid: int
    begin_ns: int
    end_ns: int

    @property
    def waited_ns(self) -> int:
        return self.end_ns - self.begin_ns


@dataclass(frozen=True)
class Stutter:
    """A long frame. number: in the log, from 0. start_ns: in time of the trace. usual_ns: of the frames around.
    waits: of threads that held it up, in order; those of several threads may overlap. lost_ns: of its time beyond the
    usual, what is within waits."""

    number: int
    start_ns: int
    time_ns: int
    usual_ns: int
    cause: str
    lost_ns: int
    waits: tuple[FrameWait, ...]

    @property
    def limit_ns(self) -> float:
        """A shorter frame is no stutter."""
        return LONG * self.usual_ns


@dataclass(frozen=True)
class Joined:
    """The stutters of a log in order, on the clock of the trace. beyond: stutters outside of the trace's time."""

    alignment: Alignment
    stutters: tuple[Stutter, ...]
    beyond: int


@dataclass(frozen=True)
class Frames:
    """start_ns: in time of the log. is_long: of the stutters."""

    start_ns: Times
    time_ns: Times
    usual_ns: Times
    is_long: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, start_ns: Times, time_ns: Times) -> "Frames":
        from scipy.ndimage import median_filter  # takes a quarter of a second to load

        near = int(np.clip(_USUAL_NS // max(1, int(np.median(time_ns))), 15, 501)) | 1
        usual_ns = median_filter(time_ns, size=near, mode="nearest")
        return cls(start_ns, time_ns, usual_ns, time_ns > LONG * usual_ns)


def stutters_of(frames: Frames, waits: Waits, alignment: Alignment, end_ns: int) -> Joined:
    """end_ns: of the trace, in its own time; it begins at 0.

    The cause of a stutter is unclear if it is not the same at each shift of the clocks within their uncertainty.
    """
    alignment = _by_frame_ends(frames, waits, _fit(frames, waits, alignment))
    at_ns = frames.start_ns[frames.is_long] + alignment.offset_ns
    within = (at_ns >= 0) & (at_ns + frames.time_ns[frames.is_long] <= end_ns)
    takes_part = [len(_shifts_of_part(frames, thread, alignment)[0]) > 0 for thread in waits.threads]
    judged = [_judged(frames, waits.threads, takes_part, alignment.offset_ns + shift) for shift in shifts_ns(alignment)]
    causes = judged[0].causes.copy()
    for variant in judged[1:]:
        causes[variant.causes != judged[0].causes] = UNCLEAR
    numbers = np.flatnonzero(frames.is_long)
    stutters = []
    for index in np.flatnonzero(within).tolist():
        number = int(numbers[index])
        waited = tuple(_waits_within(judged[0].threads_of(index), int(at_ns[index]),
                                     int(at_ns[index] + frames.time_ns[number])))
        beyond_usual = int(frames.time_ns[number] - frames.usual_ns[number])
        stutters.append(Stutter(number, int(at_ns[index]), int(frames.time_ns[number]), int(frames.usual_ns[number]),
                                CAUSE_NAMES[causes[index]], min(union_ns(waited), beyond_usual), waited))
    return Joined(alignment, tuple(stutters), int((~within).sum()))


@dataclass(frozen=True)
class _Judged:
    """causes: of each stutter. holding: by thread, whether its waits hold each stutter up."""

    causes: Causes
    threads: Sequence[ThreadWaits]
    holding: npt.NDArray[np.bool_]

    def threads_of(self, index: int) -> list[ThreadWaits]:
        return [thread for thread, holds in zip(self.threads, self.holding[:, index].tolist(), strict=True) if holds]


def _judged(frames: Frames, threads: Sequence[ThreadWaits], takes_part: Sequence[bool], offset_ns: int) -> _Judged:
    begin_ns = frames.start_ns[frames.is_long] + offset_ns
    time_ns = frames.time_ns[frames.is_long]
    beyond_ns = time_ns - frames.usual_ns[frames.is_long]
    lengths = np.rint(np.log(np.maximum(time_ns, 1)) / np.log(_WINDOW_STEP)).astype(int)
    windows = {length: _smooth_windows(frames, offset_ns, int(_WINDOW_STEP**length))
               for length in np.unique(lengths).tolist()}
    holding = np.zeros((len(threads), len(begin_ns)), bool)
    doubtful = np.zeros(len(begin_ns), bool)
    for at, thread in enumerate(threads):
        waited = thread.before(begin_ns + time_ns) - thread.before(begin_ns)
        if takes_part[at]:
            holding[at] = waited > 0
            continue
        long_waits = np.sort(waited)
        for length, (starts, ends) in windows.items():
            smooth = np.sort(thread.before(ends) - thread.before(starts))
            of_length = (lengths == length) & (waited > 0)
            half = waited[of_length] / 2
            harmful = len(long_waits) - np.searchsorted(long_waits, half)
            harmless = len(smooth) - np.searchsorted(smooth, half)
            holding[at, of_length] = harmless < harmful
            doubtful[of_length] |= ((harmless >= harmful) & (harmless < _EXONERATED * harmful)
                                    & (waited[of_length] >= _LEAST_SHARE * beyond_ns[of_length]))
    held_ns = np.zeros(len(begin_ns), np.int64)
    for index in np.flatnonzero(holding.any(axis=0)).tolist():
        holders = [thread for thread, holds in zip(threads, holding[:, index].tolist(), strict=True) if holds]
        held_ns[index] = union_ns(_waits_within(holders, int(begin_ns[index]), int(begin_ns[index] + time_ns[index])))
    causes = np.where(held_ns >= _LEAST_SHARE * beyond_ns, IO, np.where(doubtful, UNCLEAR, OTHER)).astype(np.int8)
    return _Judged(causes, threads, holding)


def _smooth_windows(frames: Frames, offset_ns: int, length_ns: int) -> tuple[Times, Times]:
    """(starts, ends) of stretches of this length, side by side, without a stutter in them, in time of the trace."""
    edges = np.flatnonzero(np.diff(frames.is_long, prepend=True, append=True))
    starts = []
    for first, behind in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        begin = int(frames.start_ns[first])
        until = int(frames.start_ns[behind - 1] + frames.time_ns[behind - 1])
        starts.append(np.arange(begin, until - length_ns + 1, max(1, length_ns), dtype=np.int64))
    at_ns = np.concatenate([*starts, np.empty(0, np.int64)]) + offset_ns
    return at_ns, at_ns + length_ns


def _waits_within(threads: Sequence[ThreadWaits], begin_ns: int, end_ns: int) -> list[FrameWait]:
    """The waits of these threads, cut to this time, in order."""
    frame_waits = []
    for thread in threads:
        first = int(np.searchsorted(thread.end_ns, begin_ns, "right"))
        behind = int(np.searchsorted(thread.begin_ns, end_ns))
        frame_waits += [FrameWait(row, thread.tid, max(begin, begin_ns), min(end, end_ns)) for row, begin, end in zip(
            thread.row[first:behind].tolist(), thread.begin_ns[first:behind].tolist(),
            thread.end_ns[first:behind].tolist(), strict=True)]
    return sorted(frame_waits, key=lambda wait: (wait.begin_ns, wait.end_ns))


def union_ns(waits: Sequence[FrameWait]) -> int:
    """The time with at least one of the waits. waits: in order."""
    total, reach = 0, -(1 << 62)
    for wait in waits:
        total += max(0, wait.end_ns - max(wait.begin_ns, reach))
        reach = max(reach, wait.end_ns)
    return total


def _fit(frames: Frames, waits: Waits, alignment: Alignment) -> Alignment:
    """A coarse alignment refined by the stutters that coincide with waits, if only one shift explains most of them."""
    if alignment.uncertainty_ns < _FIT_FROM_NS or alignment.method == "given":
        return alignment
    begin_ns = frames.start_ns[frames.is_long] + alignment.offset_ns
    time_ns = frames.time_ns[frames.is_long]
    beyond_ns = time_ns - frames.usual_ns[frames.is_long]
    shifts = np.arange(-alignment.uncertainty_ns, alignment.uncertainty_ns + 1, _FIT_STEP_NS)
    explained_ns, explained = np.zeros(len(shifts)), np.zeros(len(shifts), int)
    for at, shift in enumerate(shifts.tolist()):
        waited = np.zeros(len(begin_ns), np.int64)
        for thread in waits.threads:
            waited = np.maximum(waited, thread.before(begin_ns + shift + time_ns) - thread.before(begin_ns + shift))
        explained_ns[at] = np.minimum(waited, beyond_ns).sum()
        explained[at] = int((waited >= _LEAST_SHARE * beyond_ns).sum())
    best = int(np.argmax(explained_ns)) if len(shifts) else 0
    if not len(begin_ns) or explained[best] < _FIT_STALLS:
        return alignment
    # Waits still overlap with stutters that are shifted by less than half of their length.
    far = np.abs(shifts - shifts[best]) > max(_FIT_NEAR_NS, int(np.median(beyond_ns)) // 2)
    if far.any() and explained_ns[far].max() > _FIT_LESS * explained_ns[best]:
        return alignment
    # The shifts that explain nearly as much.
    good = shifts[explained_ns >= 0.98 * explained_ns[best]]
    return fitted(alignment, int(good[0]), int(good[-1]), _FIT_STEP_NS,
                  f"{explained[best]} long frames coincide with waits for I/O")


def _by_frame_ends(frames: Frames, waits: Waits, alignment: Alignment) -> Alignment:
    """An alignment refined by the thread that takes part in most frames: it does not wait as they end."""
    parts = [_shifts_of_part(frames, thread, alignment) for thread in waits.threads]
    shifts, expected = max(parts, key=lambda part: part[1] if len(part[0]) else 0, default=(np.empty(0, np.int64), 0.0))
    if not len(shifts) or alignment.method == "given":
        return alignment
    return fitted(alignment, int(shifts[0]), int(shifts[-1]), _part_step_ns(alignment),
                  f"a thread that waits for I/O in most frames does not wait at their ends ({expected:.0f} expected by "
                  "chance)")


def _part_step_ns(alignment: Alignment) -> int:
    return max(500_000, 2 * alignment.uncertainty_ns // (_PART_SHIFTS - 1))


def _shifts_of_part(frames: Frames, thread: ThreadWaits, alignment: Alignment) -> tuple[Times, float]:
    """(shifts of the clocks at which a thread takes part in the frames, in how many ends of frames it would wait if it
    did not)."""
    start_ns = frames.start_ns + alignment.offset_ns
    end_ns = start_ns + frames.time_ns
    share = (thread.before(end_ns) - thread.before(start_ns)) / np.maximum(frames.time_ns, 1)
    with_waits = np.flatnonzero(share > _PART_SHARE)
    sampled = with_waits[::max(1, len(with_waits) // _PART_FRAMES)]
    expected = float(share[sampled].sum())
    step_ns = _part_step_ns(alignment)
    shifts = np.arange(-alignment.uncertainty_ns, alignment.uncertainty_ns + 1, step_ns, dtype=np.int64)
    if expected < _PART_EXPECTED:
        return shifts[:0], expected
    ends_ns = (end_ns[sampled][None, :] + shifts[:, None]).ravel()
    last = np.searchsorted(thread.begin_ns, ends_ns, "right") - 1
    is_waiting = ((last >= 0) & (thread.end_ns[last] > ends_ns)).reshape(len(shifts), -1)
    return shifts[is_waiting.sum(axis=1) <= _PART_SHARE * expected], expected


def with_waits(stutter: Stutter, waits: Sequence[FrameWait]) -> Stutter:
    """The stutter with other waits, such as those on another drive: its time changes with them."""
    time_ns = stutter.time_ns - union_ns(stutter.waits) + union_ns(waits)
    return replace(stutter, time_ns=max(0, time_ns), waits=tuple(waits))
