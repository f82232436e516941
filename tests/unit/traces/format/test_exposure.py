"""The exposure of reads to background writes: against a plain count over all pairs, and what withholds a slowdown."""

import numpy as np
import pytest
from small_trace import new_trace

from blkreel.traces.format import exposure as exposure_module
from blkreel.traces.format.exposure import COLUMNS, Exposure, ExposureScan, exposure_of, percent
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS

MS, S = 10**6, 10**9
READ, WRITE = OPS["read"], OPS["write"]
OWN, ROLE = FLAGS["own"], FLAGS["role_background"]


def rows(*parts):
    """parts: (submit_ns, latency_ns, length_bytes, op, flags[, device]), each of single values or arrays."""
    arrays = [np.broadcast_arrays(*map(np.atleast_1d, (*part, 0)[:len(COLUMNS)])) for part in parts]
    columns = {name: np.concatenate([part[i] for part in arrays]) for i, name in enumerate(COLUMNS)}
    order = np.argsort(columns["submit_ns"], kind="stable")
    return {name: values[order] for name, values in columns.items()}


def scanned(columns, batch_rows=10**9):
    scan = ExposureScan()
    for begin in range(0, len(columns["op"]), batch_rows):
        scan.add({name: values[begin:begin + batch_rows] for name, values in columns.items()})
    return scan.result()


def plain(columns, is_read, is_write):
    """(read, met, beside) bytes by comparing each read with each write."""
    submit, length = columns["submit_ns"], columns["length_bytes"]
    complete = submit + columns["latency_ns"]
    is_write = is_write & (columns["latency_ns"] >= 0)
    met_bytes = beside_bytes = 0
    begin, end = submit[0], (submit + np.maximum(columns["latency_ns"], 0)).max()
    for at, size in zip(submit[is_read], length[is_read], strict=True):
        met = bool(((submit[is_write] <= at) & (complete[is_write] > at)).any())
        near = (complete[is_write] > at - S // 2) & (complete[is_write] <= at + S // 2)
        met_bytes += size * met
        covered = max(min(at + S // 2, end) - max(at - S // 2, begin), S // 10)
        beside_bytes += size * (met or round(length[is_write][near].sum() * (S / covered)) >= 5_000_000)
    return int(length[is_read].sum()), int(met_bytes), int(beside_bytes)


@pytest.mark.parametrize(("batch_rows", "piece_rows"), [(1, 1 << 16), (37, 5), (10**9, 5)])
def test_the_shares_are_those_of_a_plain_count_in_any_batches(batch_rows, piece_rows, monkeypatch):
    """Times are multiples of 10 ms, so that some are at the edges of the second around a read."""
    monkeypatch.setattr(exposure_module, "_PIECE_ROWS", piece_rows)
    random = np.random.default_rng(3)
    count = 800
    columns = {"submit_ns": np.sort(random.integers(1000, 3000, count)) * 10 * MS,
               "latency_ns": random.choice([-1, 0, 10 * MS, 300 * MS, 3 * S], count, p=[0.05, 0.05, 0.7, 0.15, 0.05]),
               "length_bytes": random.choice([4096, 1 << 20], count), "op": random.integers(0, 3, count),
               "flags": random.choice([0, OWN, ROLE], count), "device": np.zeros(count, np.int16)}
    flags, op = columns["flags"], columns["op"]
    exposure = scanned(columns, batch_rows)
    expected = plain(columns, (op == READ) & (flags == OWN), (op == WRITE) & (flags != OWN))
    assert (exposure.read_bytes, exposure.met_bytes, exposure.beside_bytes) == expected
    assert 0 < exposure.met_bytes < exposure.beside_bytes < exposure.read_bytes
    columns["flags"] = np.where(flags == OWN, 0, flags)
    exposure = scanned(columns, batch_rows)
    expected = plain(columns, (op == READ) & (columns["flags"] == 0), (op == WRITE) & (columns["flags"] == ROLE))
    assert (exposure.read_bytes, exposure.met_bytes, exposure.beside_bytes) == expected


def test_a_steady_writer_is_beside_all_reads_and_gives_its_rate():
    """A write of 1 MB each 10 ms, in flight for 1 ms, and a read 5 ms after each: none meets a write."""
    writes = np.arange(1000) * 10 * MS
    exposure = scanned(rows((writes, MS, 1_000_000, WRITE, 0), (writes[100:900] + 5 * MS, MS, 4096, READ, 0)))
    assert exposure.beside_share == 1 and exposure.met_share == 0
    assert exposure.write_bytes_s == pytest.approx(100e6)
    assert exposure.why_withheld() == ""
    assert exposure.words() == "100 % of the bytes read beside writes at 100 MB/s, 0 % with one outstanding"
    slow = scanned(rows((0, 2 * S, 16_384, WRITE, 0), (2 * S - MS, MS, 4096, READ, 0)))
    assert " beside writes at 0.0" in slow.words() and " at 0.0 MB/s" not in slow.words()


@pytest.mark.parametrize("begin_ns", [200 * MS, 5 * S])
def test_a_role_that_begins_later_counts_for_the_rows_before_it(begin_ns):
    """Reads each 10 ms beside unmarked writes, and a background: a write that is enough beside the first few reads,
    because the trace begins there, and many from 6 s on."""
    at = 10 * S + np.arange(1000) * 10 * MS
    columns = rows((at + MS, MS, 4096, READ, 0), (at, 5 * MS, 1 << 20, WRITE, 0),
                   (at[0] + begin_ns, MS, 2_600_000, WRITE, ROLE), (at[600:700], MS, 1 << 20, WRITE, ROLE))
    expected = plain(columns, columns["op"] == READ, columns["flags"] == ROLE)
    assert 0 < expected[2] < expected[0] == 1000 * 4096
    for batch_rows in (7, 10**9):
        exposure = scanned(columns, batch_rows)
        assert (exposure.read_bytes, exposure.met_bytes, exposure.beside_bytes) == expected


@pytest.mark.parametrize("batch_rows", [7, 10**9])
def test_writes_of_another_drive_are_beside_no_read(batch_rows):
    at = np.arange(300) * 10 * MS
    reads, writes = (at + MS, MS, 4096, READ, 0), (at, 5 * MS, 1_000_000, WRITE, 0, 1)
    exposure = scanned(rows(reads, writes), batch_rows)
    assert (exposure.read_bytes, exposure.met_bytes, exposure.beside_bytes) == (300 * 4096, 0, 0)
    both = scanned(rows(reads, writes, (*reads, 1)), batch_rows)
    assert (both.met_share, both.beside_share) == (0.5, 0.5)


def test_sums_of_two_runs_add_up_and_times_are_those_of_the_longer_reads():
    runs = [Exposure(100, 10, 50, 50 * 10**6, 3 * S, 2 * S, 7), Exposure(300, 20, 150, 150 * 2 * 10**6, 5 * S, None, 9)]
    expected = Exposure(400, 30, 200, 350 * 10**6, 5 * S, None, 9)
    assert runs[0] + runs[1] == runs[1] + runs[0] == expected and expected.write_bytes_s == 1.75e6


@pytest.mark.parametrize("left, right", [
    ([], []), ([5, 7], [4096, 0]), ([1 << 40, 3], [1 << 22, 1]), ([1 << 31, 1], [1 << 31, 1 << 62]),
    ([1 << 62, 1 << 62], [1 << 62, -1]), ([-1 << 63, 1], [1, 1])])
def test_a_sum_of_products_is_exact_beyond_int64(left, right):
    assert exposure_module._sum_of_products(np.array(left, np.int64), np.array(right, np.int64)) \
        == sum(a * b for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize(("sums", "why"), [
    ({}, "no reads: no slowdown by writes"),
    ({"read_bytes": 1000, "beside_bytes": 199}, "writes beside 19 % of the reads: no slowdown can be measured; "
                                                "use --background"),
    ({"read_bytes": 1000, "beside_bytes": 50, "reads_ns": 20 * S, "written_until_ns": 10 * S},
     "writes beside 5 % of the reads: no slowdown can be measured; use --background"),
    ({"read_bytes": 1000, "beside_bytes": 200}, ""),
    ({"read_bytes": 1, "beside_bytes": 1, "reads_ns": 10 * S, "written_until_ns": 9 * S}, ""),
    ({"read_bytes": 1, "beside_bytes": 1, "reads_ns": 10 * S, "written_until_ns": 8900 * MS},
     "the writes ended after 8.90 s of 10.0 s of reads: the slowdown would be too small; use --background")])
def test_the_limits_of_a_slowdown_that_can_be_stated(sums, why):
    assert Exposure(**sums).why_withheld() == why
    if "beside 5 %" in why:
        assert Exposure(**sums).why_withheld(is_looped=True).endswith("; use a background that writes more")


def test_a_share_below_a_limit_does_not_read_as_the_limit():
    assert [percent(share) for share in (0, 0.0005, 0.0299, 0.0999, 0.1999, 0.29, 1)] == [
        "0 %", "< 0.1 %", "2.9 %", "9.9 %", "19 %", "29 %", "100 %"]


def test_writes_that_end_before_the_reads_withhold_the_slowdown():
    """A capture of both, replayed on a slower drive: 3 s of writes, and reads for 10 s. A looped background does not
    end: what is missing at its end is a pause."""
    reads, writes = np.arange(1000) * 10 * MS, np.arange(300) * 10 * MS
    exposure = scanned(rows((reads, 10 * MS, 4096, READ, 0), (writes, MS, 1_000_000, WRITE, 0)))
    assert exposure.beside_share == pytest.approx(0.35, rel=0.02)
    assert exposure.why_withheld() == ("the writes ended after 2.99 s of 10.0 s of reads: the slowdown would be too "
                                       "small; use --background")
    assert exposure.why_withheld(is_looped=True) == ""


def test_a_pause_of_a_bursty_writer_is_no_end():
    """40 MB every 2 s, as in the mixed burst: the last burst may end 2 s before the reads."""
    bursts = (np.arange(5)[:, None] * 2 * S + np.arange(40) * 10 * MS).ravel()
    reads = np.arange(1000) * 10 * MS
    exposure = scanned(rows((reads, MS, 4096, READ, 0), (bursts, MS, 1_000_000, WRITE, 0)))
    assert exposure.why_withheld() == ""


def test_the_writer_stores_it_and_a_trace_without_it_is_read(tmp_path, monkeypatch):
    columns = rows((np.arange(100) * MS, MS, 4096, READ, OWN), (np.arange(100) * MS, 2 * MS, 1 << 20, WRITE, 0))
    trace = open_trace(new_trace(tmp_path / "a.parquet", {}, **columns))
    stored = Exposure.of_metadata(trace.metadata)
    assert stored == scanned(columns) and stored.met_share == 1
    monkeypatch.setattr(type(trace), "batches", lambda *args: pytest.fail("the rows were read"))
    assert exposure_of(trace) == stored
    monkeypatch.undo()
    trace.metadata["exposure"]["row_groups_at"] = [0]
    trace.metadata["exposure"]["sums"]["met_bytes"] = 1
    assert exposure_of(trace) == stored, "the key of another file is not used"
    trace.metadata["exposure"] = {"version": 1, "sums": {"met_bytes": "x"}}
    assert Exposure.of_metadata(trace.metadata) is None
