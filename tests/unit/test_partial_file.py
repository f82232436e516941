"""A partial that was kept is the one that was measured, and damage is told."""

from pathlib import Path

import numpy as np
import pytest

from blkreel.analysis.measure import Measured, measure
from blkreel.analysis.metrics import MetricsAccumulator
from blkreel.analysis.partial_file import MAGIC, dump, load
from blkreel.analysis.summary import figures

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@pytest.mark.parametrize("name", ["trace-v1.parquet", "run-v1.parquet"])
@pytest.mark.parametrize("exact", [True, False])
def test_a_kept_partial_is_the_one_that_was_measured(name, exact):
    measured = measure(GOLDEN / name, exact=exact)
    kept = load(dump(measured))
    assert kept.partial == measured.partial
    assert (kept.path, kept.rows) == (measured.path, measured.rows)
    left_out = {"survey", "boundary"}  # a replay's, and long
    assert kept.metadata == {key: value for key, value in measured.metadata.items() if key not in left_out}
    assert figures(load(dump(measured.partial))) == figures(measured.partial)
    # Pooled with itself, from the file or not.
    assert kept.partial + kept.partial == measured.partial + measured.partial
    assert dump(kept) == dump(measured)


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
    with pytest.raises(ValueError, match="version 9, not 2"):
        load(MAGIC + b"\x09" + data[len(MAGIC) + 1:])


@pytest.mark.parametrize("name", ["partial-v2", "partial-binned-v2"])
def test_a_file_of_this_version_is_read(name):
    """Written by version 2 from the golden run; python tests/unit/test_partial_file.py wrote them."""
    kept = load((GOLDEN / f"{name}.bin").read_bytes())
    assert isinstance(kept, Measured)
    now = measure(GOLDEN / "run-v1.parquet", exact=name == "partial-v2")
    assert kept.partial == now.partial and kept.rows == now.rows == 300
    assert figures(kept.partial) == figures(now.partial)


if __name__ == "__main__":
    for name, exact in (("partial-v2", True), ("partial-binned-v2", False)):
        measured = measure(GOLDEN / "run-v1.parquet", exact=exact)
        (GOLDEN / f"{name}.bin").write_bytes(dump(Measured(Path("run-v1.parquet"), *list(vars(measured).values())[1:])))
