"""What the writer of a trace leaves for its replay, held against the rows, and not believed of other rows."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_trace import new_trace

from blkreel.traces.format import trace_survey, writer
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS, RUN_SCHEMA, TRACE_SCHEMA
from blkreel.traces.format.trace_survey import COLUMNS, SurveyScan, survey_in

ROWS = 5000


def rows(seed=1):
    random = np.random.default_rng(seed)
    op = random.integers(0, 5, ROWS)
    return {"submit_ns": np.arange(ROWS) * 1000, "latency_ns": random.integers(-1, 5000, ROWS),
            "offset_bytes": random.integers(0, 1 << 20, ROWS) * 512,
            "length_bytes": np.where(op == OPS["flush"], 0, random.integers(0, 64, ROWS) * 512), "op": op,
            "flags": np.where(random.random(ROWS) < 0.2, FLAGS["preflush"] | FLAGS["hint_long"], 0),
            "device": random.integers(0, 3, ROWS)}


def write(path, columns, schema=TRACE_SCHEMA, **metadata):
    return open_trace(new_trace(path, metadata, schema=schema, **columns))


def known(trace):
    return survey_in(trace.metadata, trace.row_groups_at)


def content(found):
    facts, sets = trace_survey.facts_of(found)
    return facts, {name: [(part[0].tolist(), part[1].tolist()) for part in one.ranges()] for name, one in sets.items()}


def test_it_is_what_a_pass_over_the_rows_finds(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "ROWS_PER_GROUP", 700)
    trace = write(tmp_path / "t.parquet", rows())
    passed = SurveyScan()
    for batch in trace.batches(COLUMNS, 333):
        passed.add({name: batch[name].to_numpy() for name in COLUMNS})
    assert {device: content(one) for device, one in known(trace).items()} == \
        {device: content(one) for device, one in passed.by_device.items()}
    assert set(passed.by_device) == {0, 1, 2}


def test_by_hand(tmp_path):
    columns = {"submit_ns": np.array([5, 6, 7, 8, 9]), "latency_ns": np.array([1, -1, 1, 1, 1]),
               "offset_bytes": np.array([0, 4096, 512, 0, 1 << 30]), "length_bytes": np.array([4096, 4096, 512, 0, 0]),
               "op": np.array([OPS["read"], OPS["write"], OPS["write"], OPS["write"], OPS["read"]]),
               "flags": np.array([0, FLAGS["hint_short"] | FLAGS["atomic"], FLAGS["hint_short"], FLAGS["preflush"], 0])}
    (found,) = known(write(tmp_path / "t.parquet", columns)).values()
    assert found.ios == {"read": 1, "write": 2, "flush": 1}
    assert found.bytes == {"read": 4096, "write": 4608, "flush": 0}
    assert (found.first_submit_ns, found.last_submit_ns, found.unfinished, found.left_out) == (5, 8, 1, 1)
    assert found.unaligned[:4] == [0, 1, 1, 1]
    assert found.write_flags == {"hint_short": 4608, "atomic": 4096}
    assert (found.touched.bytes, found.read_first.bytes, found.longest_bytes) == (8192, 4096, 4096)


@pytest.mark.parametrize("change", [lambda table: table.slice(0, ROWS - 1),
                                    lambda table: table.filter(pa.compute.equal(table["op"], 0)),
                                    lambda table: table])
def test_rows_that_others_wrote_under_this_metadata_have_none(tmp_path, change):
    """What pandas or DuckDB make of a trace may carry its metadata, whatever they did to the rows."""
    trace = write(tmp_path / "t.parquet", rows())
    table = pq.read_table(trace.path)
    assert b"blkreel.survey" in table.schema.metadata
    pq.write_table(change(table), tmp_path / "other.parquet")
    assert known(open_trace(tmp_path / "other.parquet", verify=False)) is None


def test_the_metadata_of_another_trace_does_not_bring_it_along(tmp_path):
    first = write(tmp_path / "a.parquet", rows())
    again = write(tmp_path / "b.parquet", rows(2), survey=first.metadata["survey"])
    assert content(known(again)[0]) != content(known(first)[0])


@pytest.mark.parametrize("wrong", [None, [], {}, {"version": 1}, {"version": 2}, "x"])
def test_a_damaged_one_is_none(tmp_path, wrong):
    trace = write(tmp_path / "t.parquet", rows())
    assert survey_in({"survey": wrong}, trace.row_groups_at) is None
    for key, value in [("ios", {"reed": 1}), ("ios", None), ("touched", {"bytes": 10, "zstd": "eHg="}),
                       ("touched", {"bytes": 1 << 62, "zstd": ""}), ("unaligned", [1]), ("left_out", "3"),
                       ("write_flags", {"hint": 1}), ("write_flags", {"atomic": -1})]:
        survey = trace.metadata["survey"]
        survey = {**survey, "devices": {"0": {**survey["devices"]["0"], key: value}}}
        assert survey_in({"survey": survey}, trace.row_groups_at) is None, key


def test_one_that_is_too_large_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_survey, "_MOST_METADATA_BYTES", 100)
    assert "survey" not in write(tmp_path / "t.parquet", rows()).metadata
    monkeypatch.setattr(trace_survey, "_MOST_MEMORY_BYTES", 100)
    assert "survey" not in write(tmp_path / "t.parquet", rows()).metadata


def test_an_io_out_of_all_bounds_is_written_without_one(tmp_path):
    columns = rows()
    columns["offset_bytes"][7] = -512
    trace = write(tmp_path / "t.parquet", columns)
    assert "survey" not in trace.metadata
    assert trace.table()["offset_bytes"][7].as_py() == -512


def test_runs_and_traces_of_nothing(tmp_path):
    assert "survey" not in write(tmp_path / "r.parquet", rows(), RUN_SCHEMA).metadata
    assert not known(write(tmp_path / "e.parquet", {"submit_ns": []}))


@pytest.mark.filterwarnings("error")
def test_the_least_device_number_is_a_device():
    """Damaged rows may have any; the number before it would overflow."""
    scan, io = SurveyScan(), rows()
    scan.add(io | {"device": np.where(np.arange(ROWS) % 2, 0, -2**15).astype("i2")})
    assert {device: survey.total_ios > 0 for device, survey in scan.by_device.items()} == {-2**15: True, 0: True}
