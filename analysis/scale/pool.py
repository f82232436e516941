"""Tasks over processes of this machine."""

import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait as wait_for_one

from blkreel.traces.errors import BlkreelError

from .work import bytes_of

# A process that was killed takes its pool along: so often the rest is begun again in another.
ATTEMPTS = 3


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


class Pool:
    """A runner (here.py) of `jobs` processes. They are started by spawn: nothing of this process is in them.

    A part whose process was killed is done again. Raises BlkreelError where that keeps happening.
    """

    figures = staticmethod(bytes_of)

    def __init__(self, jobs: int):
        self.parallel = jobs
        self._pool = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None and self._pool is not None:
            self._pool.shutdown()  # they have nothing to do
            self._pool = None
        self._end()

    def run(self, function: Callable, parts: list, on_rows: Callable[[int, int], None]) -> Iterator[tuple[int, object]]:
        waiting, running, begun = list(reversed(range(len(parts)))), {}, 0
        while waiting or running:
            try:
                # A few more than are worked on, so that none waits for us, and no more, so that results don't pile up.
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
                begun += 1
                again = sorted(running.values())
                if begun == ATTEMPTS:
                    names = sorted({str(parts[index].place) for index in again[:self.parallel]} or {"a trace"})
                    raise BlkreelError(
                        f"processes that read {', '.join(names)} were killed {ATTEMPTS} times, perhaps by a lack of "
                        "memory",
                        "look with `dmesg | tail`; fewer at once need less: --jobs 1") from error
                waiting += reversed(again)
                running = {}

    def _submit(self, function, part):
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self.parallel, multiprocessing.get_context("spawn"), _begin)
        with _deaf_to_interrupts(), _without_main():
            return self._pool.submit(function, part)

    def _end(self):
        """Without waiting for what is still worked on."""
        if self._pool is None:
            return
        children = list((self._pool._processes or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for child in children:
            with suppress(OSError, ValueError):
                child.terminate()
        self._pool = None


def _result(future):
    try:
        return future.result()
    except BrokenProcessPool:
        raise
    except BlkreelError as error:
        return error


@contextmanager
def _deaf_to_interrupts():
    """Processes begun meanwhile inherit it: Ctrl-C is for us, and the traces of theirs would hide what we say."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main():
    """Processes begun meanwhile do not run the caller's script again, as spawn would have them do to find what is
    defined there: nothing of ours is, and a script that does not guard its lines would start pools in its own pool."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = before


def _begin():
    """In a new process: end when the parent does, which a worker that waits for work would never notice."""
    parent = multiprocessing.parent_process()

    def watch():
        wait_for_one([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
