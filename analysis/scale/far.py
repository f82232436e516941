"""Tasks in threads, for traces that are elsewhere: most of the time they wait for a storage, not for a processor."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

from blkreel.traces.errors import BlkreelError

from .pool import cores
from .work import partial_of

# Each holds the ranges of a row group in memory.
AT_ONCE = 8


class Far:
    """A runner (here.py). Unpacking and counting run beside each other too: neither is Python."""

    figures = staticmethod(partial_of)

    def __init__(self, at_once: int = AT_ONCE):
        self.parallel = cores()
        self._threads = ThreadPoolExecutor(at_once, "blkreel-far")
        self._at_once = at_once
        self._stopped = threading.Event()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self._stopped.set()
        self._threads.shutdown(cancel_futures=True)

    def run(self, function: Callable, parts: list, on_rows: Callable[[int, int], None]) -> Iterator[tuple[int, object]]:
        waiting, running = list(reversed(range(len(parts)))), {}
        while waiting or running:
            while waiting and len(running) < self._at_once:
                index = waiting.pop()
                running[self._threads.submit(function, parts[index], self._go_on)] = index
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                index = running.pop(done)
                try:
                    result = done.result()
                except BlkreelError as error:
                    result = error
                on_rows(index, parts[index].rows)
                yield index, result

    def _go_on(self, _):
        if self._stopped.is_set():
            raise InterruptedError("nobody wants it any more")
