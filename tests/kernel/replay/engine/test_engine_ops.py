"""Every kind of I/O as it arrives at a drive: the kernel's letters for each request, beside what the plan asked for.

The letters: a first F is a flush before, R W D the op (N: without data, as a write of zeros has), a later F is FUA,
and S, a hint of the submitter's, is left out here.
"""

from pathlib import Path

import numpy as np
import pytest

from blkreel.traces.format.schema import FLAGS, OPS

pytestmark = pytest.mark.kernel

MIB = 1 << 20
SIZE = 64 * MIB
BLOCK = 65536
FUA, PREFLUSH = FLAGS["fua"], FLAGS["preflush"]


@pytest.fixture
def write_cache():
    """write_cache(drive, "write through") tells the kernel that a drive has no volatile cache."""
    changed = []

    def tell(drive, what):
        file = Path("/sys/block", Path(drive).name, "queue/write_cache")
        changed.append((file, file.read_text().strip()))
        try:
            file.write_text(what)
        except OSError as error:
            pytest.skip(f"needs a write cache that can be declared away: {error.strerror}")

    yield tell
    for file, before in changed:
        file.write_text(before)


def zeroes_are_emulated(drive):
    return not int(Path("/sys/block", Path(drive).name, "queue/write_zeroes_max_bytes").read_text())


def letters(seen):
    return [kind.replace("S", "") for kind, _, _ in seen]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(("op", "flags", "arrives"), [
    ("read", 0, ["R"]),
    ("write", 0, ["W"]),
    ("flush", 0, ["F"]),
    ("discard", 0, ["D"]),
    # A drive without FUA: the kernel flushes after the write.
    ("write", FUA, ["W", "F"]),
    ("write", PREFLUSH, ["F", "W"]),
    ("write", PREFLUSH | FUA, ["F", "W", "F"]),
])
def test_one_row_of_each_kind(loop_drive, a_plan, issue, issued_to, op, flags, arrives, plain):
    drive = loop_drive(SIZE)
    seen = issued_to(drive)
    offsets = np.arange(20) * BLOCK
    length = 0 if op == "flush" else 4096
    totals, records = issue(a_plan(offsets, op=OPS[op], length_bytes=length, flags=flags), target=drive, depth=1,
                            may_write=True, plain=plain)
    assert set(records["status"]) == {0}
    requests = seen()
    kinds = letters(requests)
    # FUA is a letter of the write's even where a flush stands in for it.
    assert [kind[0] for kind in kinds] == arrives * 20
    places = [(at, size) for kind, at, size in requests if not kind.startswith("F")]
    assert places == ([] if op == "flush" else [(at, 4096) for at in offsets.tolist()])
    assert totals["altered"] == ({"fua_by_flush": 20} if flags & FUA else {})
    assert totals["dropped"] == {}


@pytest.mark.parametrize("plain", [False, True])
def test_zeroes_are_written_or_told(loop_drive, a_plan, issue, issued_to, plain):
    drive = loop_drive(SIZE)
    seen = issued_to(drive)
    totals, records = issue(a_plan(np.arange(20) * BLOCK, op=OPS["write_zeroes"], length_bytes=8192), target=drive,
                            depth=1, may_write=True, plain=plain)
    requests = seen()
    assert set(records["status"]) == {0}
    assert [(at, size) for kind, at, size in requests if "F" not in kind][-20:] == [
        (at, 8192) for at in (np.arange(20) * BLOCK).tolist()]
    if zeroes_are_emulated(drive):
        assert totals["altered"] == {"write_zeroes": 20}
    else:
        assert totals["altered"] == {}
        # A request without data is an N in the letters, or a W whose op the letters do not tell.
        assert not any(kind.startswith(("D", "R")) for kind in letters(requests))


def test_zeroes_that_may_unmap_are_written_where_there_is_no_command(loop_drive, a_plan, issue):
    """In memory: an image that can have holes, but no zeroed ranges. The kernel then believes that it has neither."""
    drive = loop_drive(SIZE)
    image = loop_drive.image_of(drive)
    image.write_bytes(b"\xff" * SIZE)
    flags = np.array([FLAGS["may_unmap"], FLAGS["may_unmap"], 0, 0, FLAGS["may_unmap"], FLAGS["may_unmap"]])
    totals, records = issue(a_plan(np.arange(6) * BLOCK, op=OPS["write_zeroes"], length_bytes=8192, flags=flags),
                            target=drive, depth=1, may_write=True)
    assert records["status"].tolist() == [0] * 6
    content = np.fromfile(image, "u1").reshape(-1, 4096)
    empty = np.flatnonzero(~content.any(axis=1)).tolist()
    assert empty == [at * 16 + part for at in range(6) for part in (0, 1)]
    assert totals["altered"] == ({"write_zeroes": 6} if zeroes_are_emulated(drive) else {})


def test_without_a_cache_nothing_is_flushed_and_that_is_told(loop_drive, a_plan, issue, issued_to, write_cache):
    drive = loop_drive(SIZE)
    write_cache(drive, "write through")
    seen = issued_to(drive)
    op = [OPS["flush"], OPS["write"], OPS["write"], OPS["write"], OPS["write"]] * 4
    flags = [0, FUA, PREFLUSH, FUA | PREFLUSH, 0] * 4
    lengths = [0, 4096, 4096, 4096, 4096] * 4
    totals, records = issue(a_plan(np.arange(20) * BLOCK, op=op, flags=flags, length_bytes=lengths), target=drive,
                            depth=1, may_write=True)
    assert set(records["status"]) == {0}
    assert letters(seen()) == ["W"] * 16
    assert totals["altered"] == {"flush_without_cache": 4, "fua_without_cache": 8, "preflush_without_cache": 4}


def test_a_drive_without_requests(zram_drive, a_plan, issue, issued_to):
    """It gets bios; it has no cache, and the kernel hands it neither flushes nor FUA."""
    seen = issued_to(zram_drive, event="block_bio_queue")
    op = [OPS[name] for name in ("write", "read", "discard", "write", "flush", "write_zeroes")]
    totals, records = issue(a_plan(np.arange(6) * BLOCK, op=op, flags=[0, 0, 0, FUA, 0, 0],
                                   length_bytes=[4096, 4096, 4096, 4096, 0, 4096]),
                            target=zram_drive, depth=1, may_write=True)
    assert set(records["status"]) == {0}
    bios = [(kind.replace("S", ""), at) for kind, at, _ in seen()]
    assert [(kind[0], at) for kind, at in bios if kind[0] != "F"] == [
        ("W", 0), ("R", BLOCK), ("D", 2 * BLOCK), ("W", 3 * BLOCK), ("N", 5 * BLOCK)]
    assert totals["altered"]["fua_without_cache"] == totals["altered"]["flush_without_cache"] == 1


def test_long_discards_are_told_as_split(loop_drive, a_plan, issue, issued_to):
    drive = loop_drive(SIZE)
    limit = Path("/sys/block", Path(drive).name, "queue/discard_max_bytes")
    before = int(limit.read_text()) // 4096 * 4096
    limit.write_text(str(4 * MIB))
    seen = issued_to(drive)
    try:
        totals, records = issue(a_plan([0, 32 * MIB], op=OPS["discard"], length_bytes=[16 * MIB, 4 * MIB]),
                                target=drive, depth=1, may_write=True)
    finally:
        limit.write_text(str(before))  # which the loop device keeps for its next image
    assert set(records["status"]) == {0}
    assert totals["split_ops"] == 1
    assert len(seen()) == 5


def test_a_discard_does_not_hold_the_row_behind_it(loop_drive, a_plan, issue):
    """Whichever way discards go, they go off the issuing thread: the next row is out before they are done."""
    drive = loop_drive(256 * MIB, where="disk")
    op = np.array([OPS["discard"], OPS["read"]] * 100)
    plan = a_plan(np.arange(200) % 4 * 64 * MIB, op=op, due_ns=np.arange(200) // 2 * 1_000_000,
                  length_bytes=np.where(op == OPS["discard"], 64 * MIB, 4096))
    for plain in (False, True):
        _, records = issue(plan, target=drive, may_write=True, plain=plain)
        assert set(records["status"]) == {0}
        order = np.argsort(records["source_row"])
        submit, complete = records["submit_ns"][order], records["complete_ns"][order]
        # One that waited for the discard would be behind it each time. That of both it is the thread that loses its
        # processor, between the two and for longer than the discard takes, happens here and there.
        assert np.median(complete[::2] - submit[1::2]) > 0
