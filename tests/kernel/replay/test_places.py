"""Where I/Os land and what is written beforehand, by every map, seen in the file that stands in for a drive."""

import json

import numpy as np
import pytest
from small_trace import new_trace

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS

BLOCK = 4096
MIB = 1 << 20
UNTOUCHED = 0xEE
# 700 I/Os of 4 to 32 KiB over 16 MiB: most blocks are touched several times, by reads and writes in any order.
IOS, SPAN_BLOCKS = 700, 4096


@pytest.fixture
def trace(tmp_path):
    random = np.random.default_rng(7)
    return new_trace(tmp_path / "t.parquet", drive_bytes=SPAN_BLOCKS * BLOCK,
                     offset_bytes=random.integers(0, SPAN_BLOCKS - 8, IOS) * BLOCK,
                     length_bytes=random.integers(1, 9, IOS) * BLOCK, op=random.integers(0, 2, IOS))


@pytest.fixture
def replayed(blkreel, trace, tmp_path):
    """Replays on a file of that size: (account, records in the order of their rows, the file's content)."""
    def run(size_bytes, *arguments):
        image = tmp_path / "image"
        image.write_bytes(bytes([UNTOUCHED]) * size_bytes)
        result = blkreel("replay", trace, "--on", image, "-o", tmp_path / "run", "--pace", "depth=1", "--json",
                         "--force", "--destroy", image, *arguments, check=False)
        assert result.returncode in (0, 3), result.stderr
        rows = open_trace(tmp_path / "run").table().to_pandas().sort_values("submit_ns", kind="stable")
        return json.loads(result.stdout)["run"], rows, np.frombuffer(image.read_bytes(), np.uint8)

    return run


def touchers(rows):
    """Of each block of the target the first op, in the order of the plan, which at a depth of one is that of issue."""
    first = {}
    for offset, length, op in rows[["offset_bytes", "length_bytes", "op"]].itertuples(index=False):
        for block in range(offset // BLOCK, (offset + length) // BLOCK):
            first.setdefault(block, op)
    return first


@pytest.mark.parametrize(("name", "size_bytes"), [
    ("identity", 16 * MIB), ("refuse", 32 * MIB), ("compact", 16 * MIB), ("wrap", 5 * MIB), ("scale", 6 * MIB),
    ("scale", 40 * MIB), ("tile=2", 32 * MIB), ("tile", 48 * MIB)])
def test_what_is_read_before_it_is_written_was_written_beforehand_and_nothing_else(replayed, name, size_bytes):
    account, rows, image = replayed(size_bytes, "--map", name)
    assert account["as_planned"], account["verdict"]
    assert account["error_ops"] == 0
    copies = account["map"].get("copies", 1)
    assert (name[:4] == "tile") == (copies > 1)
    assert len(rows) == IOS * copies == account["planned_ops"]
    assert (rows["offset_bytes"] + rows["length_bytes"]).max() <= size_bytes
    first = touchers(rows)
    read_first = [block for block, op in first.items() if op == OPS["read"]]
    assert account["prefill"]["bytes"] == len(read_first) * BLOCK
    blocks = image.reshape(-1, BLOCK)
    same = set(np.flatnonzero((blocks == UNTOUCHED).all(axis=1)).tolist())
    assert not same & set(first), "all that is touched was written, once or more"
    assert same | set(first) == set(range(size_bytes // BLOCK)), "and nothing else"


def test_without_prefill_reads_alone_leave_their_blocks(replayed):
    account, rows, image = replayed(16 * MIB, "--no-prefill")
    written = {block for offset, length, op in rows[["offset_bytes", "length_bytes", "op"]].itertuples(index=False)
               if op == OPS["write"] for block in range(offset // BLOCK, (offset + length) // BLOCK)}
    changed = set(np.flatnonzero((image.reshape(-1, BLOCK) != UNTOUCHED).any(axis=1)).tolist())
    assert changed == written
    assert account["unwritten_bytes"] > 0


def test_a_trace_that_does_not_fit(blkreel, trace, tmp_path):
    image = tmp_path / "image"
    image.write_bytes(bytes(MIB))
    for arguments in (("--map", "identity"), (), ("--map", "tile=2")):
        result = blkreel("replay", trace, "--on", image, "-o", tmp_path / "run", *arguments, check=False)
        assert result.returncode == 1
        assert "use --map wrap" in result.stderr and "compact" not in result.stderr  # which is refused too
        assert not (tmp_path / "run").exists()
    assert image.read_bytes() == bytes(MIB)
    result = blkreel("replay", trace, "--on", image, "-o", tmp_path / "run", "--map", "fold", check=False)
    assert result.returncode == 2
    assert "tile=N" in result.stderr
