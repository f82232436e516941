"""Runners do tasks on parts of traces: here in this process, in pool.py and cluster.py in others."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Protocol, Self, TypeVar

from blkreel.analysis.metrics.partials.partial import Partial
from blkreel.common.errors import BlkreelError

from .work import Part, partial_of

# Each thread holds the ranges of a row group in memory.
THREADS = 8
_LOOKUPS = 16  # at once, of remote files

T = TypeVar("T")
U = TypeVar("U")
Task = Callable[..., Any]  # of a Part, and in this process of a callback that takes rows done
RowsOfPart = Callable[[int, int], None]  # index of the part, rows of it that are done
Results = Iterator[tuple[int, Any]]


class Runner(Protocol):
    """parallel: number of tasks at once. figures: the task that measures a part, as a Partial or as its bytes."""

    @property
    def parallel(self) -> int: ...

    @property
    def figures(self) -> Callable[..., Partial | bytes]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def run(self, function: Task, parts: Sequence[Part], on_rows: RowsOfPart) -> Results:
        """(index, function(part) or the BlkreelError that it raised) of each part, in the order in which they end.

        on_rows is called when a part ends, and while it is read if the runner can see it.
        """
        ...


@contextmanager
def mapping(is_remote: bool) -> Iterator[Callable[[Callable[[T], U], Iterable[T]], Iterable[U]]]:
    """map(), for remote files with many calls at once: each is a round trip or three."""
    if not is_remote:
        yield map
        return
    with ThreadPoolExecutor(_LOOKUPS) as threads:
        yield threads.map


def cores() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


class SerialRunner:
    """A runner that does one task after the other, in this process."""

    parallel = 1
    figures = staticmethod(partial_of)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def run(self, function: Task, parts: Sequence[Part], on_rows: RowsOfPart) -> Results:
        for index, part in enumerate(parts):
            try:
                result = function(part, lambda done, index=index: on_rows(index, done))
            except BlkreelError as error:
                result = error
            on_rows(index, part.rows)
            yield index, result


class ThreadRunner:
    """A runner of threads, for remote traces: most of the time a thread waits for the storage, not for a processor.
    Unpacking and counting run in parallel too, because neither is Python code."""

    figures = staticmethod(partial_of)

    def __init__(self, threads: int = THREADS):
        self.parallel = cores()
        self._pool = ThreadPoolExecutor(threads, "blkreel-remote")
        self._threads = threads
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)

    def run(self, function: Task, parts: Sequence[Part], on_rows: RowsOfPart) -> Results:
        waiting = list(reversed(range(len(parts))))
        running: dict[Future[Any], int] = {}
        while waiting or running:
            while waiting and len(running) < self._threads:
                index = waiting.pop()
                running[self._pool.submit(function, parts[index], self._check_stopped)] = index
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                index = running.pop(done)
                try:
                    result = done.result()
                except BlkreelError as error:
                    result = error
                on_rows(index, parts[index].rows)
                yield index, result

    def _check_stopped(self, _: int) -> None:
        if self._stopped.is_set():
            raise InterruptedError("the runner was closed")
