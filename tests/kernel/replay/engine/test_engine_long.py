"""Reads and writes that are longer than the engine's buffers: one row, one record, the requests that one I/O makes."""

import errno
from pathlib import Path

import numpy as np
import pytest
from empty_image import empty_image

from blkreel.traces.format.schema import FLAGS, OPS

pytestmark = pytest.mark.kernel

MIB = 1 << 20
SIZE = 256 * MIB


def request_bytes(drive):
    return int(Path("/sys/block", Path(drive).name, "queue/max_sectors_kb").read_text()) * 1024


def covered(seen, kind):
    """The extents of requests of one kind, neighbors put together."""
    extents = []
    for at, size in sorted((at, size) for letters, at, size in seen if letters.startswith(kind)):
        if extents and extents[-1][1] == at:
            extents[-1][1] = at + size
        else:
            extents.append([at, at + size])
    return extents


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("op", ["read", "write"])
def test_a_long_row_is_one_record_and_arrives_whole(loop_drive, a_plan, issue, issued_to, op, plain):
    drive = loop_drive(SIZE)
    seen = issued_to(drive)
    lengths = [17 * MIB, 4096, 200 * MIB + 4096, 5 * MIB + 512]
    offsets = [MIB, 20 * MIB, 32 * MIB, 240 * MIB]
    totals, records = issue(a_plan(offsets, op=OPS[op], length_bytes=lengths), target=drive, depth=4,
                            may_write=op == "write", plain=plain)
    order = np.argsort(records["source_row"])
    assert records["length_bytes"][order].tolist() == lengths
    assert records["status"].tolist() == [0] * 4
    assert totals["bytes"] == {op: sum(lengths)}
    assert (totals["split_ops"], totals["buffers_full_ops"]) == (3, 0)
    requests = seen()
    assert covered(requests, op[0].upper()) == [[at, at + length] for at, length in zip(offsets, lengths, strict=True)]
    assert max(size for _, _, size in requests) <= request_bytes(drive)
    if op == "write":
        image = np.fromfile(loop_drive.image_of(drive), "u8").reshape(-1, 512)
        inside = np.zeros(len(image), bool)
        for at, length in zip(offsets, lengths, strict=True):
            inside[at // 4096:(at + length) // 4096] = True
        assert np.array_equal(image[inside][:, 1], np.flatnonzero(inside) * 4096), "data that belongs elsewhere"
        assert len(np.unique(image[inside][:, 0])) == inside.sum()


def test_a_long_row_is_cut_where_the_kernel_would_cut_it(loop_drive, a_plan, issue, issued_to):
    drive = loop_drive(SIZE)
    unit = 192 << 10  # no part of what the engine's buffers hold
    Path("/sys/block", Path(drive).name, "queue/max_sectors_kb").write_text(str(unit >> 10))
    seen = issued_to(drive)
    issue(a_plan([0], length_bytes=50 * unit + 8192), target=drive)
    places = sorted((at, size) for _, at, size in seen())
    assert places == [(at * unit, unit) for at in range(50)] + [(50 * unit, 8192)]


def test_the_flush_of_a_long_write_goes_before_all_of_it(loop_drive, a_plan, issue, issued_to):
    drive = loop_drive(SIZE)
    seen = issued_to(drive)
    _, records = issue(a_plan([0, 64 * MIB], op=OPS["write"], length_bytes=33 * MIB, flags=FLAGS["preflush"]),
                       target=drive, depth=1, may_write=True)
    assert records["status"].tolist() == [0, 0]
    kinds = "".join(letters[0] for letters, _, _ in seen())
    assert kinds.strip("FW") == ""
    first, second = kinds.split("F")[1:]
    assert kinds.count("F") == 2 and kinds[0] == "F"
    assert len(first) == len(second) >= 33 * MIB // request_bytes(drive)


def test_a_long_row_fails_once(tiny_filesystem, a_plan, issue):
    image = empty_image(tiny_filesystem / "image", SIZE)
    totals, records = issue(a_plan([0, 0], op=[OPS["write"], OPS["read"]], length_bytes=[64 * MIB, 8192]),
                            target=image, may_write=True, depth=1)
    assert records["source_row"].tolist() == [0, 1]
    assert records["status"][0] in (-errno.ENOSPC, -errno.EIO)
    assert records["status"][1] == 0
    assert (totals["error_ops"], totals["bytes"]) == (1, {"read": 8192})
