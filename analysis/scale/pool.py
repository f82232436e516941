"""A runner of processes on this machine."""

import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait as wait_for_one
from typing import Any, Self

from blkreel.common.errors import BlkreelError

from .runner import Results, RowsOfPart, Task
from .work import Part, bytes_of

# A killed process breaks its pool: the rest is started again in another, up to this many times.
ATTEMPTS = 3


class Pool:
    """A runner of `jobs` processes. They are spawned, so that they hold nothing of this process.

    A part whose process was killed is done again. Raises BlkreelError after ATTEMPTS kills.
    """

    figures = staticmethod(bytes_of)

    def __init__(self, jobs: int):
        self.parallel = jobs
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        if kind is None and self._pool is not None:
            self._pool.shutdown()  # they have nothing to do
            self._pool = None
        self._end()

    def run(self, function: Task, parts: Sequence[Part], on_rows: RowsOfPart) -> Results:
        waiting, kills = list(reversed(range(len(parts)))), 0
        running: dict[Future[Any], int] = {}
        while waiting or running:
            try:
                # A few more than run, so that no process waits; no more, so that results do not pile up.
                while waiting and len(running) < self.parallel + 2:
                    future = self._submit(function, parts[waiting[-1]])
                    running[future] = waiting.pop()
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    result = _result(done)
                    index = running.pop(done)
                    on_rows(index, parts[index].rows)
                    yield index, result
            except BrokenProcessPool as error:
                self._end()
                kills += 1
                again = sorted(running.values())
                if kills == ATTEMPTS:
                    names = sorted({str(parts[index].location) for index in again[:self.parallel]} or {"a trace"})
                    raise BlkreelError(
                        f"processes that read {', '.join(names)} were killed {ATTEMPTS} times, perhaps by a lack of "
                        "memory",
                        "look with `dmesg | tail`; fewer at once need less: --jobs 1") from error
                waiting += reversed(again)
                running = {}

    def _submit(self, function: Task, part: Part) -> Future[Any]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self.parallel, multiprocessing.get_context("spawn"), _exit_with_parent)
        with _interrupts_blocked(), _without_main():
            return self._pool.submit(function, part)

    def _end(self) -> None:
        """Stop the processes without waiting for their tasks."""
        if self._pool is None:
            return
        children = list((self._pool._processes or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for child in children:
            with suppress(OSError, ValueError):
                child.terminate()
        self._pool = None


def _result(future: Future[Any]) -> Any:
    try:
        return future.result()
    except BrokenProcessPool:
        raise
    except BlkreelError as error:
        return error


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes started meanwhile inherit the mask: Ctrl-C is for this process, and they print no traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Processes started meanwhile do not import the script of the caller. Nothing of ours is defined there, and a
    script without a guard would start pools in its own pool."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = before


def _exit_with_parent() -> None:
    """In a new process: exit when the parent does, which a worker that waits for work would not notice."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        assert parent is not None
        wait_for_one([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
