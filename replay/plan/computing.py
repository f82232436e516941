"""Computing times of the rows of a dependent replay: what part of a think time needs a processor.

A thread's time between two rows is the sum of what it was blocked by I/O, slept for anything else, waited for a
processor, and computed. On another drive other threads compute at the same time, so that the waits for a processor are
not those of the capture: the engine shares the processors among the rows that compute (docs/replay.md).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from blkreel.replay.engine.engine import Batch

from .history import UNKNOWN_NS, History

# Threads of the trace that take this share of the processors' time leave nothing to other programs worth the name. At
# 0.7 and 0.9 the load times of the laboratory are the same within 4 %, and without it those of queries 14 % longer.
_BUSY_SHARE = 0.8
_ROUNDS = 5  # 20 change the load time of no program of the laboratory by more than 3 %

@dataclass(frozen=True)
class _Part:
    """A part of the rows' think times, in ns. waiting_ns: for a processor."""

    asleep_ns: np.ndarray
    waiting_ns: np.ndarray
    cpu_ns: np.ndarray


def divided(columns: Batch, factor: float, history: History, number: np.ndarray, thread_row: np.ndarray,
            computing: np.ndarray) -> Batch:
    """Rows of distances() with the computing times divided by the factor.

    thread_row: the previous row of the same thread, or NONE. Time that the thread was blocked by I/O after the
    completion that it waited for stays. computing: rows whose distances are computing time at all. Waits for timers,
    frames or the network are not known without `slept_ns`: they count as computing.
    """
    waited_ns = np.where(computing, _blocked_ns(columns, history, number, thread_row), columns["delay_ns"])
    return {**columns, "delay_ns": waited_ns + _rounded((columns["delay_ns"] - waited_ns) / factor),
            "compute_ns": np.where(computing, _rounded(columns["compute_ns"] / factor), columns["compute_ns"])}


def on_processors(columns: Batch, processors: int, factor: float, history: History, number: np.ndarray,
                  thread_row: np.ndarray, woken: np.ndarray) -> tuple[Batch, np.ndarray]:
    """Rows of distances() with the time that they need of a processor in *_cpu_ns, and a mask of the rows that have it.

    processors: of the captured machine. factor: divisor of the computing times. thread_row: as for divided().
    woken: rows that wait for what ended the sleep of their thread, so that it has no length of its own.
    What a row waited for a processor while no more threads of the trace computed than there were processors was other
    programs' doing: it stays in its delay.
    """
    slept_ns, waiting_ns = (history.between_ns(name, thread_row, number) for name in ("slept_ns", "runnable_ns"))
    has_times = (slept_ns >= 0) & (waiting_ns >= 0)
    slept_ns = np.where(woken & has_times, 0, slept_ns)
    blocked_ns = _blocked_ns(columns, history, number, thread_row)
    submit_ns = history.submit_ns(number)
    # A thread that is woken waits for a processor then, so that the waits belong to the end as far as they fit there.
    after = _part(columns["delay_ns"] - blocked_ns, slept_ns, waiting_ns, has_times)
    before = _part(columns["compute_ns"], slept_ns - after.asleep_ns, waiting_ns - after.waiting_ns, has_times)
    # In the order of the engine: computing, sleep, and after the completion sleep, computing.
    explained = _explained_ns(before, history.submit_ns(thread_row), after, submit_ns, has_times, processors)
    result = dict(columns)
    for name, part, explained_ns in zip(("compute", "delay"), (before, after), explained, strict=True):
        fixed_ns = part.asleep_ns + part.waiting_ns - explained_ns + (blocked_ns if part is after else 0)
        result[f"{name}_ns"] = np.where(has_times, fixed_ns, columns[f"{name}_ns"])
        result[f"{name}_cpu_ns"] = np.where(has_times, _rounded(part.cpu_ns / factor), 0)
    return result, has_times


def _rounded(time_ns: np.ndarray) -> np.ndarray:
    return np.asarray(np.rint(time_ns).astype(np.int64))


def _blocked_ns(columns: Batch, history: History, number: np.ndarray, thread_row: np.ndarray) -> np.ndarray:
    """How long the thread was blocked by I/O after the completion that it waited for, before the row."""
    blocked_ns = history.between_ns("blocked_ns", thread_row, number)
    before_ns = history.submit_ns(number) - columns["delay_ns"] - history.submit_ns(thread_row)
    return np.where(blocked_ns == UNKNOWN_NS, 0, np.clip(blocked_ns - before_ns, 0, columns["delay_ns"]))


def _part(length_ns: np.ndarray, slept_ns: np.ndarray, waiting_ns: np.ndarray, has_times: np.ndarray) -> _Part:
    """The part of this length, with as much of the waits and the sleep as it has room for."""
    waiting_ns = np.where(has_times, np.clip(waiting_ns, 0, length_ns), 0)
    asleep_ns = np.where(has_times, np.clip(slept_ns, 0, length_ns - waiting_ns), 0)
    return _Part(asleep_ns, waiting_ns, np.where(has_times, length_ns - waiting_ns - asleep_ns, 0))


def _explained_ns(before: _Part, before_ns: np.ndarray, after: _Part, until_ns: np.ndarray, has_times: np.ndarray,
                  processors: int) -> np.ndarray:
    """The parts of both waiting_ns in which the threads of these rows shared the processors, by the rule of the engine.

    The first begins at before_ns, the second ends at until_ns. As in the engine a row runs only for its computing and
    for what is explained. Rows of other batches of the plan are not counted. A thread that wakes several times between
    two rows does not compute at once: if the others had the processors nearly all the time in which one did not
    compute, all its waits are explained.
    """
    waiting_ns, cpu_ns = (np.concatenate([getattr(part, name)[has_times] for part in (before, after)])
                          for name in ("waiting_ns", "cpu_ns"))
    first, last_ns, count = before_ns[has_times], until_ns[has_times], int(has_times.sum())
    explained_ns, of_rows = waiting_ns, np.zeros((2, len(has_times)), np.int64)
    # The less is explained, the shorter the rows run beside each other.
    for _ in range(_ROUNDS):
        runs_ns = cpu_ns + explained_ns
        begin_ns = np.concatenate([first, last_ns - runs_ns[count:]])
        explained_ns = np.minimum(waiting_ns, _lost_ns(begin_ns, begin_ns + runs_ns, processors))
    cpu_of_row_ns = cpu_ns.reshape(2, -1).sum(0)
    free_ns = processors * (last_ns - first) - cpu_of_row_ns
    is_busy = _others_ns(first, last_ns, cpu_of_row_ns) >= _BUSY_SHARE * free_ns
    of_rows[:, has_times] = np.where(is_busy, waiting_ns.reshape(2, -1), explained_ns.reshape(2, -1))
    return of_rows


def _lost_ns(begin_ns: np.ndarray, end_ns: np.ndarray, processors: int) -> np.ndarray:
    """What threads that run from begin_ns to end_ns lose to each other by sharing the processors equally."""
    return _rounded(_sums(begin_ns, end_ns, np.ones(len(begin_ns)),
                          lambda running: 1 - np.minimum(1, processors / np.maximum(running, 1))))


def _others_ns(begin_ns: np.ndarray, end_ns: np.ndarray, cpu_ns: np.ndarray) -> np.ndarray:
    """What the others compute from begin_ns to end_ns, each evenly between its own."""
    rate = cpu_ns / np.maximum(end_ns - begin_ns, 1)
    return np.asarray(np.maximum(_sums(begin_ns, end_ns, rate, lambda running: running) - cpu_ns, 0))


def _sums(begin_ns: np.ndarray, end_ns: np.ndarray, rate: np.ndarray,
          of_running: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """From begin_ns to end_ns, the integral over time of a function of the rates that run then."""
    at_ns, index = np.unique(np.concatenate([begin_ns, end_ns]), return_inverse=True)
    begin, end = index[:len(begin_ns)], index[len(begin_ns):]
    running = np.cumsum(np.bincount(begin, rate, len(at_ns)) - np.bincount(end, rate, len(at_ns)))
    sums = np.concatenate([[0], np.cumsum(np.diff(at_ns) * of_running(running)[:-1])])
    return np.asarray(sums[end] - sums[begin])
