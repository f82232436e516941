"""Text of blkparse in its default format: `major,minor cpu sequence seconds pid action rwbs sector + sectors [name]`.

The lines are those that blkparse prints for the binary export of the same trace, but for I/Os below a sector, which it
prints as I/Os without an extent.
"""

from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blkreel.traces.format.trace import Trace

from .blktrace import NAME_BYTES
from .block_events import COMPLETE, MINOR_BITS, QUEUE, SECTOR_BYTES, BlockEvents, flag
from .export_format import Account, Columns, ExportFormat, is_op, joined, thread_names

_ACTIONS = pa.array([" Q", " D", " C"])
_NS_PER_S = 10**9


def _write(trace: Trace, file: IO[bytes], account: Account) -> None:
    events = BlockEvents(trace, account, whole_sectors=True)
    names = {tid: _printed_name(name) for tid, name in thread_names(trace).items() if tid > 0 and name}
    for part in events:
        file.write(joined(_lines(part, events.start_ns, names)))


def _lines(events: Columns, start_ns: int, names: dict[int, str]) -> pa.Array:
    since_ns = events["time_ns"] - start_ns
    device = events["device"]
    numbers, at = np.unique(device, return_inverse=True)
    devices = pa.array([f"{number >> MINOR_BITS:3d},{number & (1 << MINOR_BITS) - 1:<3d}"
                        for number in numbers.tolist()])
    time = pc.binary_join_element_wise(_padded(since_ns // _NS_PER_S, 5), _padded(since_ns % _NS_PER_S, 9, "0"), ".")
    extent = pc.binary_join_element_wise(_text(events["sector"]), _text(events["bytes"] // SECTOR_BYTES), " + ")
    empty, complete = pa.array(events["bytes"] == 0), pa.array(events["stage"] == COMPLETE)
    extent = pc.if_else(empty, pc.if_else(complete, _text(events["sector"]), ""), extent)
    tids, tid_at = np.unique(events["tid"], return_inverse=True)
    name = pa.array([names.get(tid, "(null)") for tid in tids.tolist()]).take(pa.array(tid_at))
    # blkparse prints the error as an unsigned number of 16 bits.
    note = pc.if_else(complete, _text(events["status"].astype(np.int64) & 0xFFFF), name)
    opening = pc.if_else(pc.and_(empty, pc.invert(complete)), "[", " [")
    note = pc.binary_join_element_wise(opening, note, "]\n", "")
    head = pc.binary_join_element_wise(
        devices.take(pa.array(at)), _padded(events["cpu"], 2), _padded(events["sequence"], 8), time,
        _padded(events["tid"], 5), _ACTIONS.take(pa.array(events["stage"])), _kinds(events), " ")
    return pc.binary_join_element_wise(head, pc.binary_join_element_wise(extent, note, ""), " ")


def _kinds(events: Columns) -> pa.Array:
    """The field rwbs: flush before, operation, FUA, read-ahead, sync, metadata; at least three characters."""
    flush, discard = is_op(events, "flush"), is_op(events, "discard")
    bits = [("F", flush | flag(events, "preflush") & (events["stage"] != QUEUE)), ("D", discard),
            ("W", is_op(events, "write", "write_zeroes", "zone_append")), ("R", is_op(events, "read")), ("N", flush),
            ("F", flag(events, "fua")), ("A", flag(events, "read_ahead")), ("S", flag(events, "sync")),
            ("M", flag(events, "metadata"))]
    code = sum((mask.astype(np.int64) << bit for bit, (_, mask) in enumerate(bits)), np.zeros(len(flush), np.int64))
    codes, at = np.unique(code, return_inverse=True)
    texts = ["".join(letter for bit, (letter, _) in enumerate(bits) if value >> bit & 1).rjust(3)
             for value in codes.tolist()]
    return pa.array(texts).take(pa.array(at))


def _text(numbers: np.ndarray) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _padded(numbers: np.ndarray, width: int, padding: str = " ") -> pa.Array:
    return pc.utf8_lpad(_text(numbers), width, padding)


def _printed_name(name: str) -> str:
    """A name of at most 15 bytes, as the kernel has it, on one line."""
    cut = name.encode("utf-8", "surrogateescape")[:NAME_BYTES - 1].decode("utf-8", "replace")
    return "".join(character if character.isprintable() else "?" for character in cut)


FORMAT = ExportFormat("blkparse", "text of blkparse", ".blkparse", _write)
