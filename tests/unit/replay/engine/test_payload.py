"""What reaches the target when data is to be compressible or to hold duplicates, as compressors and hashes see it."""

import hashlib
import shutil
import subprocess

import numpy as np
import pytest
from empty_image import empty_image
from tree import TREE

from blkreel.replay.engine.engine import COPY_KINDS, Payload
from blkreel.traces.format.schema import OPS

MIB = 1 << 20
SIZE = 64 * MIB
BLOCK_BYTES = 4096


@pytest.fixture
def written(tmp_path, a_plan, issue):
    """written(length_bytes=..., **options) fills a file through the engine and is what then stands in it."""
    def fill(length_bytes=65536, size=SIZE, **shares):
        image = empty_image(tmp_path / "image", size)
        totals, _ = issue(a_plan(np.arange(0, size, length_bytes), op=OPS["write"], length_bytes=length_bytes),
                          target=image, may_write=True, depth=32, payload=Payload(**shares))
        assert totals["bytes"] == {"write": size}
        return image.read_bytes()

    return fill


def zstd_left_percent(data):
    """What `zstd -1` makes of all of it as one stream."""
    if not shutil.which("zstd"):
        pytest.skip("needs zstd: apt-get install zstd")
    packed = subprocess.run(["zstd", "-1", "--stdout", "--quiet"], input=data, capture_output=True, check=True).stdout
    return 100 * len(packed) / len(data)


@pytest.mark.parametrize("length_bytes", [12288, 524288])
def test_both_and_writes_of_any_length(written, length_bytes):
    data = written(length_bytes=length_bytes, size=48 * MIB, compressible_percent=60, duplicates_percent=40)
    originals = 256 * 100 / (48 * MIB // BLOCK_BYTES)
    blocks = np.frombuffer(data, f"V{BLOCK_BYTES}")
    distinct = len({hashlib.sha256(block).digest() for block in blocks})
    assert 100 * distinct / len(blocks) == pytest.approx(60 + originals, abs=0.3)
    assert zstd_left_percent(data) == pytest.approx(40, abs=1)


def test_every_sector_compresses(written):
    """A drive or a writer of single sectors meets the same share as one of whole blocks."""
    sectors = np.frombuffer(written(compressible_percent=50, size=4 * MIB), "u1").reshape(-1, 512)
    assert not sectors[:, 256:].any()
    assert (sectors[:, 16:256] != 0).mean() > 0.99


def test_the_number_of_repeated_blocks_is_that_of_the_helper():
    assert f"#define COPY_KINDS {COPY_KINDS}u\n" in (TREE / "replay/native/target/payload.c").read_text()
