"""A runner of processes on this machine."""

import multiprocessing
import os
import signal
import sys
import threading
import traceback
import types
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Self

from blkreel.common.errors import BlkreelError

from .runner import Part, Results, RowsOfPart, Task, bytes_of

# A part whose process was killed is done again by another, until this many were killed.
ATTEMPTS = 3

_SPAWN = multiprocessing.get_context("spawn")


class Pool:
    """A runner of `jobs` processes. They are spawned, so that they hold nothing of this process.

    A part whose process was killed is done again. Raises BlkreelError after ATTEMPTS kills.

    Each process has a pipe of its own, and this process keeps only its own end. ProcessPoolExecutor shares one pipe: a
    process that is killed within a result leaves half of it there, and the reader waits for the rest forever.
    """

    figures = staticmethod(bytes_of)

    def __init__(self, jobs: int):
        self.parallel = jobs
        self._processes: dict[Connection, SpawnProcess] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self, function: Task, parts: Sequence[Part], on_rows: RowsOfPart) -> Results:
        waiting = list(reversed(range(len(parts))))
        running: dict[Connection, int] = {}
        kills: Counter[int] = Counter()

        def fill() -> None:
            while waiting and len(running) < self.parallel:
                pipe = next((process for process in self._processes if process not in running), None) or self._start()
                running[pipe] = waiting.pop()
                with suppress(OSError):  # it was killed: so says the pipe when it is read
                    pipe.send((function, parts[running[pipe]]))

        try:
            fill()
            while running:
                (pipe, *_) = wait(list(running))
                assert isinstance(pipe, Connection)
                index = running.pop(pipe)
                try:
                    result = pipe.recv()
                except (EOFError, OSError):
                    self._bury(pipe)
                    kills[index] += 1
                    if kills[index] == ATTEMPTS:
                        raise BlkreelError(
                            f"processes that read {parts[index].location} were killed {ATTEMPTS} times, perhaps by a "
                            "lack of memory", "look with `dmesg | tail`; fewer at once need less: --jobs 1") from None
                    waiting.append(index)
                    fill()
                    continue
                if isinstance(result, Exception) and not isinstance(result, BlkreelError):
                    raise result
                fill()  # before the caller does something with the result: no process waits for it
                on_rows(index, parts[index].rows)
                yield index, result
        finally:
            if running:  # an error, or the caller needs no more
                self._end()

    def _start(self) -> Connection:
        parent_end, child_end = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_work, args=(child_end,), daemon=True)
        resource_tracker.ensure_running()  # with the first process it would start, and unblock interrupts
        with _interrupts_blocked(), _without_main(), child_end:
            process.start()
        self._processes[parent_end] = process
        return parent_end

    def _bury(self, pipe: Connection) -> None:
        pipe.close()
        process = self._processes.pop(pipe)
        process.terminate()
        process.join()

    def _end(self) -> None:
        """Stop the processes without waiting for their tasks."""
        for process in self._processes.values():
            process.terminate()
        for pipe in list(self._processes):
            self._bury(pipe)


def _work(pipe: Connection) -> None:
    """In a new process: do what the pipe says, until its other end is closed."""
    _exit_with_parent()
    with suppress(EOFError, BrokenPipeError):
        while True:
            function, part = pipe.recv()
            try:
                result = function(part)
            except Exception as error:
                if not isinstance(error, BlkreelError):
                    error.add_note(traceback.format_exc())  # what is sent has no traceback
                result = error
            pipe.send(result)


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
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
