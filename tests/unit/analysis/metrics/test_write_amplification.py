"""Write amplification by hand, its interval against drives whose true writes are known, and why it is refused."""

from math import ceil, floor, gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blkreel.analysis.metrics.write_amplification import WriteCounts, why_unknown, write_amplification
from blkreel.traces.format.metadata_types import Run

GB = 10**9
UNIT = 512_000  # of data_units_written


def run_of(host, media, written_bytes=None, **more):
    writes = {"unit": "B", "host": host, "media": media, "host_step": UNIT, "media_step": 4096, **more}
    return {"telemetry": {"smart": {"writes": writes}, "drives": None}, "written_bytes": written_bytes}


def counts_of(run):
    return WriteCounts.of(Run.of({"run": run}))


def test_ten_units_by_hand():
    """10 units of 512,000 bytes, each known to one unit: 9 to 11."""
    factor = WriteCounts("B", 10 * UNIT, 15 * UNIT, UNIT, UNIT).factor
    assert (factor.value, factor.low, factor.high) == (1.5, 14 / 11, 16 / 9)
    assert factor.high - factor.low > 2 * 0.1 * factor.value and not factor.is_certain


def test_two_drives_and_two_runs_add_up():
    run = run_of(2 * GB, 3 * GB, 4 * GB)
    run["telemetry"]["drives"] = {"nvme1n1": {"smart": run_of(2 * GB, 5 * GB)["telemetry"]["smart"]}}
    counts = counts_of(run)
    assert (counts.host, counts.media, counts.host_step, counts.written_bytes) == (4 * GB, 8 * GB, 2 * UNIT, 4 * GB)
    assert write_amplification(counts + counts).value == 2 and (counts + counts).written_bytes == 8 * GB
    # One of them does not count: then no factor is of both.
    run["telemetry"]["drives"]["nvme1n1"]["smart"] = None
    assert counts_of(run) is None


@pytest.mark.parametrize("run", [
    None, {}, {"telemetry": None}, {"telemetry": {"smart": None}}, {"telemetry": {"smart": {"changed": {}}}},
    {"telemetry": {"smart": {"writes": None}}}])
def test_a_run_without_counters_has_no_factor(run):
    assert counts_of(run) is None and write_amplification(None) is None
    assert why_unknown(counts_of(run)) == "the drive has no counter of media writes"


@pytest.mark.parametrize(("run", "reason"), [
    (run_of(0, 5 * GB), "too few writes for the drive's counters"),
    (run_of(UNIT, UNIT), "too few writes for the drive's counters"),
    (run_of(4 * UNIT, 6 * UNIT), "too few writes for the drive's counters: 1.20 to 2.00"),
    (run_of(2 * GB, 0), "too few writes"),
    (run_of(2 * GB, 3 * GB, GB), "the drive counted 2.00 GB of writes, the run wrote 1.00 GB"),
    (run_of(GB, 3 * GB, 2 * GB), "the drive counted 1.00 GB of writes, the run wrote 2.00 GB"),
    (run_of(2 * GB, 3 * GB, 2 * GB - 2 * UNIT), ""), (run_of(2 * GB, 3 * GB), "")])
def test_why_a_factor_is_refused(run, reason):
    counts = counts_of(run)
    assert why_unknown(counts).startswith(reason) and bool(why_unknown(counts)) == bool(reason)
    assert (write_amplification(counts) is None) == bool(reason)


@given(host=st.integers(0, 10**12), media=st.integers(0, 10**12), host_step=st.integers(1, 10**9),
       media_step=st.integers(1, 10**9), before=st.tuples(st.integers(0, 10**14), st.integers(0, 10**14)),
       rounds=st.sampled_from([floor, ceil]))
def test_the_true_factor_lies_in_the_interval(host, media, host_step, media_step, before, rounds):
    """Of counters of any step from any value, rounded down (vendors) or up (NVMe)."""
    def grown(begin, growth, step):
        round_to = (lambda value: value // step * step) if rounds is floor else lambda value: -(-value // step) * step
        values = [round_to(begin), round_to(begin + growth)]
        return values[1] - values[0], gcd(*values) or step

    (host_grown, found_host_step), (media_grown, found_media_step) = (
        grown(before[0], host, host_step), grown(before[1], media, media_step))
    factor = WriteCounts("B", host_grown, media_grown, found_host_step, found_media_step).factor
    if factor is not None:
        assert factor.low * host <= media * (1 + 1e-12) and media <= factor.high * host * (1 + 1e-12)
