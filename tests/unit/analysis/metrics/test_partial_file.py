"""A stored partial equals the measured one, and damage is reported."""

import hashlib
import json
import struct
import zlib
from itertools import islice

import numpy as np
import pytest
from cases import is_fuzzing
from damaged import damaged
from tree import TREE

from blkreel.analysis.metrics.accumulator import MetricsAccumulator
from blkreel.analysis.metrics.definitions.registry import figures
from blkreel.analysis.metrics.measure import measure
from blkreel.analysis.metrics.partials.partial_file import MAGIC, VERSION, dump, load
from blkreel.common.errors import TraceError

GOLDEN = TREE / "tests/golden"


def test_a_long_trace_is_kept_in_little():
    random = np.random.default_rng(1)
    count = 300_000
    metrics = MetricsAccumulator(exact=False)
    metrics.feed({"submit_ns": np.cumsum(random.integers(1, 50_000, count)),
                  "latency_ns": random.lognormal(11, 1, count).astype(np.int64),
                  "queue_ns": random.integers(300, 5000, count), "length_bytes": 4096 << random.integers(0, 6, count),
                  "offset_bytes": random.integers(0, 1 << 30, count) * 512, "op": random.integers(0, 3, count),
                  "tid": random.integers(0, 50, count)})
    assert len(dump(metrics.finish())) < 200_000


def test_damage_and_other_versions_are_told():
    data = dump(MetricsAccumulator().finish())
    assert load(data).runs == 1
    for broken in (b"", MAGIC, data[:-1], data[:40], data[:50] + b"x" + data[51:], b"PAR1" + data):
        with pytest.raises(ValueError, match="partial"):
            load(broken)
    with pytest.raises(ValueError, match=f"version 99, not {VERSION}"):
        load(MAGIC + bytes([99]) + data[len(MAGIC) + 1:])


def test_a_field_of_another_type_or_shape_is_refused():
    """Each part of the text with other values and without: an error, or a partial whose figures can be computed.

    In `make test` one text in two: reads, writes and other I/Os have the same parts.
    """
    data = (GOLDEN / f"partial-v{VERSION}.bin").read_bytes()
    head = len(MAGIC) + 1
    plain = zlib.decompress(data[head:])
    text_end = 4 + int.from_bytes(plain[:4], "little")
    refused = accepted = 0
    for text in islice(damaged(json.loads(plain[4:text_end])), None, None, 1 if is_fuzzing() else 2):
        changed = struct.pack("<I", len(text)) + text + plain[text_end:]
        try:
            assert figures(load(data[:head] + zlib.compress(changed, 1)))
            accepted += 1
        except ValueError as error:
            assert str(error).startswith("a damaged partial")
            refused += 1
        except TraceError as error:
            assert "more than 64 bits" in str(error)
    assert accepted < refused / 4


@pytest.mark.parametrize("name", [f"partial-v{VERSION}", f"partial-binned-v{VERSION}"])
def test_a_file_of_this_version_is_read(name):
    """Written by that version from the golden run: `python` with this file wrote them."""
    cached = load((GOLDEN / f"{name}.bin").read_bytes())
    now = measure(GOLDEN / "run-v1.parquet", exact="binned" not in name)
    assert now.rows == 300
    assert cached == now.partial and figures(cached) == figures(now.partial)


# What dump() held, unpacked, of the input below: by VERSION, exact or binned.
PINNED = {8: {True: "23969e2e0a3b19319c1eaef1e37eb7492032684d27d2596dc4d0246cb9ad9c8a",
              False: "119d714fdf13b7f7e3efcce3a16fed65ff28fb6bfa720e8b197c0a7fd11c5c1c"}}


def made_up(count=2000):
    """Rows in which each figure has something: bursts by time and by label, planned and late ones, several threads and
    drives, errors, I/Os without completion, one that outlasts others. Sums only: another numpy draws others."""
    at = np.arange(count)
    scattered = at * 7919 % 1009
    submit_ns = at * 3_000_000 + scattered * 1000 + at // 400 * 2_000_000_000
    latency_ns = 50_000 + scattered**2 * 30
    latency_ns[at % 97 == 5], latency_ns[11] = -1, 900_000_000
    return {"submit_ns": submit_ns, "latency_ns": latency_ns,
            "queue_ns": np.where(at % 13, scattered * 11, -1), "offset_bytes": at // 8 % 50 * (1 << 24) + at % 8 * 4096,
            "length_bytes": np.where(scattered % 7, 4096, 131_072), "op": np.minimum(at % 11 // 4, 3),
            "flags": np.where(scattered % 5, 0, 1 << 16), "status": np.where(at % 211, 0, -5),
            "tid": 100 + at // 40 % 5, "device": at // 1000,
            "due_ns": np.where(at % 17, submit_ns - scattered * 700, -1),
            "burst": np.where(at < 1200, at // 300, -1), "idle_removed_ns": at // 100 * 1000}


@pytest.mark.parametrize("exact", [True, False])
def test_what_a_kept_partial_holds_changes_with_its_version_only(exact):
    metrics, columns = MetricsAccumulator(exact=exact), made_up()
    metrics.feed(columns)
    partial = metrics.finish()
    assert load(dump(partial)) == partial
    found = hashlib.sha256(zlib.decompress(dump(partial)[len(MAGIC) + 1:])).hexdigest()
    assert PINNED.get(VERSION, {}).get(exact) == found, (
        "what is kept beside traces now has other figures, another meaning or another form. Raise VERSION in "
        "partial_file.py, so that nothing kept before is believed, and pin this digest in place of the old one")


if __name__ == "__main__":
    for name, exact in ((f"partial-v{VERSION}", True), (f"partial-binned-v{VERSION}", False)):
        measured = measure(GOLDEN / "run-v1.parquet", exact=exact)
        (GOLDEN / f"{name}.bin").write_bytes(dump(measured.partial))
