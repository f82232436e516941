"""The data that a drive gets with compares: its own, read once before the run."""

import os
from dataclasses import replace

import numpy as np
import pytest
from empty_image import empty_image
from fake_engine import FakeEngine, replay
from quiet import progress
from small_trace import new_trace

from blkreel.common.errors import BlkreelError
from blkreel.replay.drive.claim import held
from blkreel.replay.drive.target import find_target
from blkreel.replay.plan.pace import ALL_IDLE, ORIGINAL
from blkreel.replay.plan.planner import plan_trace
from blkreel.replay.prepare import compares
from blkreel.replay.prepare.compares import compare_data, compared_blocks
from blkreel.traces.blocksets.block_set import BlockSet
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS

MIB = 1 << 20
SIZE = 8 * MIB
READ, COMPARE = OPS["read"], OPS["compare"]


@pytest.fixture
def target(tmp_path, monkeypatch):
    """An image of random data, in place of a drive that has the command."""
    empty_image(tmp_path / "image", SIZE)
    (tmp_path / "image").write_bytes(np.random.default_rng(1).bytes(SIZE))
    monkeypatch.setattr(compares, "has_compare", lambda target: True)
    return find_target(tmp_path / "image")


@pytest.fixture
def plan_of(tmp_path, target):
    """plan_of((offset_bytes, length_bytes, op), ...)"""
    def make(*rows, target=target, **options):
        offset, length, op = np.array(rows).T
        new_trace(tmp_path / "t.parquet", {"devices": [{"name": "src"}], "lost": {"total": 0}}, offset_bytes=offset,
                  length_bytes=length, op=op, submit_ns=np.arange(len(rows)) * 1000)
        return plan_trace(open_trace(tmp_path / "t.parquet"), target, pace=ORIGINAL, idle=ALL_IDLE, **options)

    return make


def held_data(descriptor):
    """{offset_bytes: data}, as native/target/compares.h has it."""
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    count, *numbers = np.frombuffer(content[:8 * (len(content) // 8)], np.int64)
    ranges = np.array(numbers[:3 * count]).reshape(-1, 3).tolist()
    return {start: content[at:at + end - start] for start, end, at in ranges}


def ranges_of(blocks):
    return [pair for start, end in blocks.ranges() for pair in zip(start.tolist(), end.tolist(), strict=True)]


def test_overlapping_compares_need_their_blocks_once(plan_of, target):
    plan = plan_of((8192, 8192, COMPARE), (12288, 8192, COMPARE), (8192, 512, COMPARE), (65536, 512, COMPARE),
                   (32768, 4096, READ))
    blocks, = compared_blocks(plan, passthrough=True)
    assert ranges_of(blocks) == [(8192, 20480), (65536, 66048)]
    content = target.path.read_bytes()
    with held(target) as claim, compare_data(blocks, claim, progress) as descriptor:
        assert held_data(descriptor) == {8192: content[8192:20480], 65536: content[65536:66048]}
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_more_blocks_than_are_read_at_once(target):
    blocks = BlockSet.of(np.array([512]), np.array([512 + 3 * MIB]))
    with held(target) as claim, compare_data(blocks, claim, progress) as descriptor:
        assert held_data(descriptor) == {512: target.path.read_bytes()[512:512 + 3 * MIB]}


def test_copies_compare_their_own_blocks(plan_of):
    blocks, = compared_blocks(plan_of((4096, 4096, COMPARE), map_name="tile=2"), passthrough=True)
    assert ranges_of(blocks) == [(4096, 8192), (SIZE // 2 + 4096, SIZE // 2 + 8192)]


def test_compares_grow_to_blocks_of_the_drive(plan_of, target):
    large = replace(target, block_bytes=4096)
    blocks, = compared_blocks(plan_of((4608, 512, COMPARE), target=large), passthrough=True)
    assert ranges_of(blocks) == [(4096, 8192)]


@pytest.mark.parametrize("why", ["no passthrough", "no command", "no drive", "reads only"])
def test_nothing_is_read_for_compares_that_no_drive_gets(plan_of, monkeypatch, why):
    if why == "no command":
        monkeypatch.setattr(compares, "has_compare", lambda target: False)
    options = {"target": find_target("nil:8MiB")} if why == "no drive" else {}
    plan = plan_of((0, 4096, COMPARE), (0, 4096, READ), **options, without=("writes",) if why == "reads only" else ())
    blocks, = compared_blocks(plan, passthrough=why != "no passthrough")
    assert not blocks.bytes
    with compare_data(blocks, None, progress) as descriptor:
        assert descriptor is None


def test_too_much_data_is_refused_with_its_size(plan_of, monkeypatch):
    monkeypatch.setattr(compares, "MOST_BYTES", 3 * MIB)
    plan = plan_of((0, 2 * MIB, COMPARE), (MIB, 2 * MIB, COMPARE))
    assert compared_blocks(plan, passthrough=True)[0].bytes == 3 * MIB
    plan = plan_of((0, 2 * MIB, COMPARE), (2 * MIB, 2 * MIB, COMPARE))
    with pytest.raises(BlkreelError, match="need 4.19 MB of data in memory, more than 3.15 MB; .*omit --passthrough"):
        compared_blocks(plan, passthrough=True)


def test_a_run_gets_the_data_that_the_prefill_wrote(plan_of, target, tmp_path):
    """And the account has what the engine counted."""
    seen = []

    def engine(options, plan, on_rows, on_note):
        if not seen:
            with open(target.path, "r+b") as image:
                image.write(b"p" * SIZE)  # as the prefill would
        seen.append([held_data(support.compare_data) for support in options.write_support])
        return FakeEngine()(options, plan, on_rows, on_note) | {"compares_unequal": 1}

    plan = plan_of((4096, 4096, COMPARE), (4096, 512, COMPARE))
    account = replay(plan, tmp_path / "run", engine, passthrough=True)
    assert seen == [[], [{4096: b"p" * 4096}]]
    assert (account["compares"], account["compared_bytes"], account["compares_unequal"]) == (2, 4608, 1)
    assert account["error_ops"] == 0 and account["verdict"]["level"] == "qualified"
    assert "1 of 2 compares found other data than before the run" in [
        reason["text"] for reason in account["verdict"]["reasons"] if reason["code"] == "compared_data"]
