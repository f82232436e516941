"""What a thread had used of a file when the kernel read the next part of it ahead.

The kernel reads the next window of a file ahead when a thread reaches the first page of the last one
(page_cache_async_ra). So the thread had used the window before the last one: if that was in time on the drive of the
trace, no row shows it, but on a slower drive the thread waits for it, and the kernel has at most two windows of the
file in flight (docs/replay.md).
"""

from dataclasses import dataclass, field

import numpy as np

from blkreel.replay.engine.engine import Batch
from blkreel.traces.format.schema import FLAGS, OPS

# The last files of all threads: a thread that comes back to one after so many others begins anew.
_MAX_FILES = 4096
# Requests that the kernel collects before it issues them (BLK_MAX_REQUEST_COUNT). What comes after them in one window
# cannot be told from the next window.
_COLLECTED_ROWS = 32


@dataclass(slots=True)
class _File:
    """Where read-ahead of a file by a thread has got to. Windows: rows of the trace."""

    end_bytes: int = 0
    submit_ns: int = 0  # of the last row
    last: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)


class ReadAheadWindows:
    """The windows of each file and thread, for the rows of one lane in their order."""

    def __init__(self) -> None:
        self._files: dict[tuple[int, int, int], _File] = {}

    def used(self, io: Batch, source_row: np.ndarray) -> dict[int, list[int]]:
        """For rows of the batch by index: the rows of the trace that their threads had used when they were submitted.

        io: submit_ns as captured, offset_bytes, length_bytes, op, flags, device, tid, and queue_ns and inode if the
        trace has them. Without queue_ns, which tells the rows of one window from those of the next, nothing is known.
        """
        if "queue_ns" not in io:
            return {}
        flags = io["flags"] & (FLAGS["read_ahead"] | FLAGS["deferred"])
        index = np.flatnonzero((flags == FLAGS["read_ahead"]) & (io["op"] == OPS["read"]) & (io["tid"] >= 0) &
                               (io["queue_ns"] >= 0))
        inode = io["inode"][index] if "inode" in io else np.zeros(len(index), np.int64)
        found: dict[int, list[int]] = {}
        for i, row, tid, device, file, submit_ns, queue_ns, offset, length in zip(
                index.tolist(), source_row[index].tolist(), io["tid"][index].tolist(), io["device"][index].tolist(),
                inode.tolist(), io["submit_ns"][index].tolist(), io["queue_ns"][index].tolist(),
                io["offset_bytes"][index].tolist(), io["length_bytes"][index].tolist(), strict=True):
            state = self._files.pop((tid, device, file), None)
            # A file that has been read on for three windows goes on in another extent.
            if state is None or (state.end_bytes != offset and not (state.before and file > 0)):
                state = _File()
            elif state.end_bytes != offset or submit_ns - queue_ns > state.submit_ns:
                # It entered the queue after the row before it was issued: another window.
                if state.before and len(state.last) < _COLLECTED_ROWS:
                    found[i] = state.before
                state.before, state.last = state.last, []
            state.last.append(row)
            state.end_bytes, state.submit_ns = offset + length, submit_ns
            self._files[tid, device, file] = state  # the last to be dropped
            if len(self._files) > _MAX_FILES:
                del self._files[next(iter(self._files))]
        return found
