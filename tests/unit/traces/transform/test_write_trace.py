"""blkreel.write_trace: rows of a program become a valid trace, or an error says why not."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tree import COMPILE, GAME_LOAD

import blkreel
from blkreel.common.errors import BlkreelError, UsageError
from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace

ROWS = {"submit_ns": [0, 100, 300, 700], "latency_ns": [50, 60, 70, 80], "offset_bytes": [0, 4096, 8192, 0],
        "length_bytes": [4096] * 4, "op": ["read", "read", "write", "read"], "waited_on": [-1, 0, 1, 0]}


def written(path):
    findings = check(open_trace(path))
    assert findings.errors == []
    return open_trace(path).table().to_pydict()


@pytest.mark.parametrize("kind", [dict, pd.DataFrame, pa.table, lambda rows: pa.table(rows).to_reader()],
                         ids=["dict", "pandas", "table", "stream"])
def test_rows_of_any_kind(tmp_path, kind):
    rows = written(blkreel.write_trace(tmp_path / "t.parquet", kind(ROWS)))
    assert rows["op"] == [0, 0, 1, 0] and rows["waited_on"] == [-1, 0, 1, 0] and rows["tid"] == [-1] * 4
    assert rows["think_ns"] == [0, 50, 140, 650]


def test_rows_are_sorted_and_dependencies_follow(tmp_path):
    frame = pd.DataFrame(ROWS).iloc[[3, 1, 0, 2]].reset_index(drop=True)
    frame["waited_on"] = [2, 2, -1, 1]  # positions
    rows = written(blkreel.write_trace(tmp_path / "t.parquet", frame))
    assert rows["submit_ns"] == [0, 100, 300, 700] and rows["waited_on"] == [-1, 0, 1, 0]


def test_a_part_of_a_trace_by_its_index(tmp_path):
    """A filtered frame keeps the index, by which waited_on still names the rows."""
    game = blkreel.open(GAME_LOAD)
    frame = game.frame()
    part = frame[frame.tid != frame.tid.mode()[0]].iloc[50:]
    path = blkreel.write_trace(tmp_path / "part.parquet", part, like=GAME_LOAD)
    rows, labels = written(path), part.index.to_numpy()
    for row, parent in zip(part.waited_on, rows["waited_on"], strict=True):
        assert labels[parent] == row if parent >= 0 else row not in labels
    assert sum(parent >= 0 for parent in rows["waited_on"]) > 100
    metadata = open_trace(path).metadata
    assert metadata["devices"] == game.metadata["devices"] and metadata["history"][0]["command"] == "write_trace"
    assert "ledger" not in metadata and metadata["duration_ns"] < game.metadata["duration_ns"]


def test_rows_of_several_traces_are_no_rows_of_one(tmp_path):
    """The same number names a row of each: a dependency must not lead to that of another trace."""
    frame = blkreel.open({"A": COMPILE, "B": COMPILE}).frame()
    second = frame[frame.label == "B"].drop(columns="label")
    path = blkreel.write_trace(tmp_path / "t.parquet", second, like=COMPILE)
    assert written(path)["waited_on"] == written(COMPILE)["waited_on"]
    both = frame.drop(columns=["label", "think_ns"])
    with pytest.raises(UsageError, match="several rows have the same index"):
        blkreel.write_trace(tmp_path / "u.parquet", both, like=COMPILE)
    blkreel.write_trace(tmp_path / "u.parquet", both.drop(columns="waited_on"), like=COMPILE)


def test_an_index_of_times_or_names_is_no_row_number(tmp_path):
    """Each dependency would be one on an omitted row, and be dropped."""
    frame = blkreel.open(COMPILE).frame()
    for index in (pd.to_datetime(frame.submit_ns), frame.index.astype(str), [frame.op, frame.index]):
        with pytest.raises(UsageError, match="the index of the rows is not row numbers"):
            blkreel.write_trace(tmp_path / "t.parquet", frame.set_index(index), like=COMPILE)
    path = blkreel.write_trace(tmp_path / "t.parquet", frame.set_index(index).drop(columns=["waited_on", "think_ns"]))
    assert set(written(path)["waited_on"]) == {-1}


def test_the_same_rows_give_the_same_rows(tmp_path):
    frame = blkreel.open(COMPILE).frame()
    path = blkreel.write_trace(tmp_path / "t.parquet", frame, like=COMPILE)
    pd.testing.assert_frame_equal(blkreel.open(path).frame(), frame)


def test_records_of_a_run_become_a_trace(tmp_path, blkreel):
    import blkreel as api

    blkreel("replay", "sample:app-start", "--on", "nil:64GiB,clock=virtual", "-o", tmp_path / "run")
    frame = api.open(tmp_path / "run").frame().drop(columns=["waited_on", "think_ns"])
    path = api.write_trace(tmp_path / "t.parquet", frame, like=tmp_path / "run")
    assert written(path)["stream"] and not open_trace(path).is_run


@pytest.mark.parametrize("change, text", [
    ({"op": ["read", "read", "erase", "read"]}, "unknown op: 'erase'; operations: read, write"),
    ({"op": [0, 0, 99, 0]}, "1 row: unknown op"),
    ({"think_ns": [0, 50, 1, 650]}, r"1 row: think_ns is not .* \(first at row 2\); drop the column think_ns"),
    ({"latency_ns": [50, 900, 70, 80]}, r"1 row: the I/O of waited_on has no completion .* \(first at row 2\)"),
    ({"offset_bytes": [0, -1, 0, 0]}, "negative offset or length"),
    ({"offset_bytes": [0, 0.5, 0, 0]}, "column offset_bytes has values that are not int64"),
    ({"offset_bytes": [0, np.nan, 0, 0]}, "column offset_bytes has values that are not int64"),
    ({"device": [0, 0, 40_000, 0]}, "column device has values that are not int16"),
    ({"submit_ns": [at_ns - 10_000 for at_ns in ROWS["submit_ns"]]}, "submit_ns is negative"),
    ({"offset_bytes": [0, 0]}, "different lengths"), ({"tid": 5}, "different lengths"),
    ({"size": [1, 2, 3, 4]}, "a trace has no column size"),
])
def test_rows_that_are_no_trace(tmp_path, change, text):
    with pytest.raises(BlkreelError, match=text):
        blkreel.write_trace(tmp_path / "t.parquet", {**ROWS, **change})
    assert not list(tmp_path.iterdir())


def test_missing_columns_and_other_objects(tmp_path):
    with pytest.raises(BlkreelError, match="lack the column length_bytes"):
        blkreel.write_trace(tmp_path / "t.parquet", {name: ROWS[name] for name in ("submit_ns", "offset_bytes", "op")})
    with pytest.raises(BlkreelError, match="rows are a int"):
        blkreel.write_trace(tmp_path / "t.parquet", 5)


def test_rows_that_pandas_wrote_lack_the_metadata(tmp_path):
    pd.read_parquet(blkreel.write_trace(tmp_path / "t.parquet", ROWS)).to_parquet(tmp_path / "pandas.parquet")
    with pytest.raises(BlkreelError, match="not its metadata.*blkreel.write_trace"):
        open_trace(tmp_path / "pandas.parquet")


def test_an_existing_file_is_kept(tmp_path):
    path = blkreel.write_trace(tmp_path / "t.parquet", ROWS)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(BlkreelError, match="exists"):
        blkreel.write_trace(path, ROWS)
    assert blkreel.write_trace(path, ROWS, force=True, public=True, metadata={"title": "four"}).stat().st_mode & 0o77
    assert open_trace(path).metadata["title"] == "four"
    assert written(blkreel.write_trace(tmp_path / "none.parquet", {name: [] for name in ROWS}))["op"] == []


@pytest.mark.parametrize("metadata", [
    {"epoch_ns": 1e18}, {"epoch_ns": 9190000000 * 10**9}, {"title": 5}, {"devices": "disk"}, {"threads": {"a": {}}},
    {"clock_pairs": [{"monotonic_ns": 1}]}, {"duration_ns": np.int64(5)}, {"lost": float("nan")}], ids=str)
def test_metadata_that_a_reader_calls_damaged_is_refused(tmp_path, metadata):
    with pytest.raises(UsageError, match="metadata: "):
        blkreel.write_trace(tmp_path / "t.parquet", ROWS, metadata=metadata)
    assert not (tmp_path / "t.parquet").exists()


def test_metadata_of_another_version_of_the_format_is_of_this_one(tmp_path):
    metadata = {"schema_version": 9, "threads": {5: {"pid": 5}}}
    written(blkreel.write_trace(tmp_path / "t.parquet", ROWS, metadata=metadata))
