"""The shared pipeline of imports: account, devices, order, clock, limits and refusals."""

import random
import re
import struct

import numpy as np
import pytest
from cases import cases
from foreign_traces import RECORDINGS
from hypothesis import given
from hypothesis import strategies as st

from blkreel.common.errors import TraceError, UsageError
from blkreel.traces.format.reader import open_trace
from blkreel.traces.importers import ImportOptions, import_recording
from blkreel.traces.importers.nearly_sorted import TooFarBack, nearly_sorted

FIRST = 128166385295514663
FIRST_NS = (FIRST - 116444736000000000) * 100


@pytest.fixture
def run_lines(run):
    """Imports lines of the MSR format: (frame, result)."""
    return lambda *lines, **options: run("".join(f"{line}\n" for line in lines), "msr", **options)


def line(number=0, host="hm", disk=0, op="Read", offset=4096, size=512, response=10):
    return f"{FIRST + number},{host},{disk},{op},{offset},{size},{response}"


def test_rows_in_any_order_are_sorted_from_time_0(run_lines):
    numbers = list(range(0, 5000, 5))
    random.Random(1).shuffle(numbers)
    frame, result = run_lines(*(line(number, offset=512 * number) for number in numbers))
    assert frame.submit_ns.tolist() == [500 * at for at in range(1000)]
    assert (frame.offset_bytes == frame.submit_ns // 100 * 512).all()
    assert (result.metadata["epoch_ns"], result.metadata["duration_ns"]) == (FIRST_NS, (4995 + 10) * 100)
    assert result.metadata["clock_pairs"] == [{"monotonic_ns": FIRST_NS, "realtime_ns": FIRST_NS}]
    back = np.diff(numbers) < 0
    ledger = result.metadata["ledger"]
    assert ledger["clock_back_steps"] == back.sum()
    reached = np.maximum.accumulate(numbers)
    assert ledger["clock_back_largest_ns"] == 100 * max(reached - numbers)


def test_a_clock_that_steps_back_after_many_rows_keeps_all_rows(run_lines, tmp_path):
    """So far back that the rows before are written already: the file is read again."""
    count, late = 240_000, 1000
    numbers = np.concatenate([np.arange(late, count), np.arange(late)])
    frame, result = run_lines(*(f"{FIRST + number},hm,0,Read,{number % 4096 * 4096},512,1"
                                for number in numbers.tolist()))
    assert frame.submit_ns.tolist() == (np.arange(count) * 100).tolist()
    assert (frame.offset_bytes == np.arange(count) % 4096 * 4096).all()
    assert result.metadata["ledger"]["records"] == count and result.metadata["ledger"]["clock_back_steps"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recording", "t.parquet"]


def test_each_rejected_record_has_a_reason_and_the_first_a_line(run_lines):
    good = [line(number) for number in range(1000)]
    frame, result = run_lines(*good[:500], line(op="Trim"), line(offset=-512), *good[500:], line(size=0), "1,2",
                        line(op="Trim"), max_rejected=0.01)
    rejected = result.metadata["ledger"]["rejected"]
    assert {reason: tally["count"] for reason, tally in rejected.items()} == {
        "not 7 fields": 1, "the operation is unknown": 2, "the offset is negative or out of range": 1,
        "the length is 0": 1}
    assert "line 501" in rejected["the operation is unknown"]["example"]
    assert "line 1,004: 1,2" in rejected["not 7 fields"]["example"]
    assert len(frame) == 1000 and len(result.missing) == 4
    assert result.metadata["ledger"]["records"] == 1005


def test_more_rejected_records_than_allowed_are_an_error(run_lines, tmp_path):
    lines = [*(line(number) for number in range(97)), *["broken"] * 3]
    with pytest.raises(TraceError, match=r"3\.00 % of 100 records .* limit 1 %.*line 98: broken.*--max-rejected 4%"):
        run_lines(*lines)
    assert not list(tmp_path.glob("*.parquet")) and not list(tmp_path.glob(".*"))
    frame, _ = run_lines(*lines, max_rejected=0.04)
    assert len(frame) == 97


def test_disks_become_devices_and_one_can_be_chosen(run_lines):
    lines = [line(number, host=("hm", "usr")[number % 2], disk=number % 3) for number in range(60)]
    frame, result = run_lines(*lines)
    names = [device["name"] for device in result.metadata["devices"]]
    assert sorted(names) == ["hm_0", "hm_1", "hm_2", "usr_0", "usr_1", "usr_2"]
    assert frame.device.value_counts().tolist() == [10] * 6
    frame, result = run_lines(*lines, devices=("usr_1",))
    assert [device["name"] for device in result.metadata["devices"]] == ["usr_1"]
    assert len(frame) == 10 and result.metadata["ledger"]["ignored"]["I/O of another device"]["count"] == 50
    with pytest.raises(UsageError, match="no I/O of device usr_9"):
        run_lines(*lines, devices=("usr_9",))


def test_more_devices_than_a_trace_holds_are_refused_and_one_of_them_is_imported(run_lines):
    lines = [line(number, disk=number) for number in range(33_000)]
    with pytest.raises(TraceError, match="more than 32,768 devices.*--device"):
        run_lines(*lines)
    frame, _ = run_lines(*lines, devices=("hm_32999",))
    assert len(frame) == 1


def test_files_are_one_trace_on_one_clock(run):
    files = [(f"hm_{disk}.csv", "".join(f"{line(10 * number + disk, disk=disk)}\n" for number in range(2000)))
             for disk in range(3)]
    frame, result = run(files)
    assert len(frame) == 6000 and frame.device.value_counts().tolist() == [2000] * 3
    assert frame.submit_ns.tolist() == sorted(1000 * number + 100 * disk for number in range(2000) for disk in range(3))
    assert result.metadata["ledger"]["clock_back_steps"] == 0


def test_the_resolution_of_the_clock_is_coarser_where_ios_share_their_times(run_lines):
    assert run_lines(*(line(number) for number in range(200)))[1].metadata["clock_resolution_ns"] == 100
    coarse = run_lines(*(line(number // 7 * 10_000_000) for number in range(200)))[1].metadata
    assert coarse["clock_resolution_ns"] == 1_000_000_000
    assert coarse["source_lacks"] == ["thread", "process", "dependencies"]


def test_regular_times_are_no_coarse_clock(run_lines):
    for step in (1_000_000, 10_000_000):
        assert run_lines(*(line(step * number) for number in range(200)))[1].metadata["clock_resolution_ns"] == 100


def test_the_resolution_of_the_clock_can_be_stated(run_lines):
    lines = [line(number // 7 * 10_000_000) for number in range(200)]
    _, result = run_lines(*lines, clock_resolution_ns=1000)
    assert result.metadata["clock_resolution_ns"] == 1000
    assert result.metadata["times_step_ns"] == 10**9, "a replay at these times is qualified"
    assert any(re.search(r"all times are multiples of 1(\.0*)? s", line) for line in result.warnings)
    _, result = run_lines(*(line(number) for number in range(200)), clock_resolution_ns=10**9)
    assert result.metadata["clock_resolution_ns"] == 10**9 and result.warnings == []
    assert "times_step_ns" not in result.metadata


@pytest.mark.parametrize("name, options", [
    ("tencent", {}), ("columns", {"columns": "time=1:s,op=2,offset=3:bytes,length=4:bytes"})])
def test_a_clock_that_the_format_states_as_coarse_can_be_overridden_with_its_limit(run, name, options):
    """Also of fewer records than show a step, and of times of their own."""
    text = ("1538323200,8,8,0,1283\n1538323207,16,8,1,1283\n" if name == "tencent"
            else "5,R,4096,4096\n12,W,8192,4096\n")
    for stated_ns, step_ns in ((None, None), (1000, 10**9), (10**9, None)):
        _, result = run(text, clock_resolution_ns=stated_ns, **options)
        assert result.metadata["clock_resolution_ns"] == (stated_ns or 10**9)
        assert result.metadata.get("times_step_ns") == step_ns
        assert any("all times are multiples of 1.00 s" in line for line in result.warnings) == bool(step_ns)


def test_whole_numbers_of_a_table_show_the_resolution_of_their_unit(run):
    columns = "time=1:ms,op=2,offset=3:bytes,length=4:bytes"
    for text, resolution_ns in (("1", 1_000_000), ("1.5", 1)):
        _, result = run(f"0,R,0,512\n{text},R,0,512\n", columns=columns)
        assert result.metadata["clock_resolution_ns"] == resolution_ns


def test_a_trace_needs_no_import(run):
    _, result = run("0,R,0,512\n1,R,0,512\n", columns="time=1:ms,op=2,offset=3:bytes,length=4:bytes")
    with pytest.raises(UsageError, match="other.parquet is a trace of blkreel") as refused:
        run(result.path.read_bytes(), name="other.parquet")
    assert "blkreel info" in refused.value.remedy


def test_an_unknown_file_names_the_formats_and_the_closest(run):
    with pytest.raises(TraceError, match="unknown format; closest: msr with another delimiter; .*--columns.*known"):
        run(RECORDINGS["msr"].replace(b",", b";"))
    # A log of bandwidth by fio, which was "oracle-general, 78 % alike".
    log = "".join(f"{500 * at}, {at * 7919 % 9000}, 0, 0, 0\n" for at in range(400))
    with pytest.raises(TraceError) as refused:
        run(log)
    assert "closest" not in str(refused.value) and "--format" not in str(refused.value)
    # Lines of 24 bytes, and pairs of 32-bit numbers, were oracle-general, and refused for want of a --block-size.
    for data in ("1700000000,1234567,4096\n" * 60, struct.pack("<300I", *range(300))):
        with pytest.raises(TraceError, match="unknown format"):
            run(data)
    with pytest.raises(UsageError, match="no such format: msrc; did you mean 'msr'"):
        run(log, "msrc")


def test_units_that_a_detected_format_assumes_are_stated(run):
    text = "242.50 0 100 8 1\n" * 3
    assert "times in ms" in run(text)[1].assumed and run(text, "disksim")[1].assumed == ""


def test_files_of_one_name_in_two_directories_are_two_devices(tmp_path):
    """Files of one directory are parts of one, as those that btrecord writes for each CPU."""
    paths = [tmp_path / name for name in ("a/vol.0", "a/vol.1", "b/vol.0", "b/other.0")]
    for number, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"t,o,b,n\n{number},R,0,512\n")
    result = import_recording(paths, tmp_path / "t.parquet",
                              options=ImportOptions(columns="time=t:us,op=o,offset=b:bytes,length=n:bytes"))
    assert open_trace(result.path).table()["device"].to_pylist() == [0, 0, 1, 2]
    assert [device["name"] for device in result.metadata["devices"]] == [
        f"{tmp_path}/a/vol", f"{tmp_path}/b/vol", "other"]


def passed_on(batches, waiting_rows):
    """Times and numbers of arrival as they leave, and the length of each batch."""
    arrival = np.cumsum([0, *map(len, batches)])
    columns = ({"submit_ns": np.array(times), "tid": np.arange(begin, begin + len(times))}
               for begin, times in zip(arrival, batches, strict=False))
    parts = list(nearly_sorted(columns, waiting_rows))
    return (np.concatenate([part["submit_ns"] for part in parts]).tolist(),
            np.concatenate([part["tid"] for part in parts]).tolist(), [len(part["tid"]) for part in parts])


@cases(16)
@given(st.lists(st.lists(st.integers(-50, 50), min_size=1, max_size=9), min_size=1, max_size=9), st.integers(1, 12))
def test_rows_are_in_order_of_time_then_of_arrival_or_refused(batches, waiting_rows):
    times = [time for batch in batches for time in batch]
    try:
        submit_ns, arrival, _ = passed_on(batches, waiting_rows)
    except TooFarBack:
        # Some row belongs before as many others as wait.
        assert max(sum(before > time for before in times[:at]) for at, time in enumerate(times)) >= 1
        assert len(times) > waiting_rows
        return
    order = np.argsort(times, kind="stable")
    assert submit_ns == np.array(times)[order].tolist()
    assert arrival == order.tolist()


def test_batches_in_order_pass_unchanged_and_few_wait():
    batches = [list(range(begin, begin + 10)) for begin in range(0, 100, 10)]
    assert passed_on(batches, 15)[2] == [10] * 10
    with pytest.raises(TooFarBack):
        passed_on([*batches, [3]], 15)
    assert passed_on([*batches, [3]], 200)[0] == sorted([*range(100), 3])


def test_rows_with_and_without_a_column_are_sorted_together():
    always = {name: np.zeros(1, np.int64) for name in ("offset_bytes", "length_bytes", "op")}
    parts = list(nearly_sorted(iter([always | {"submit_ns": np.array([5]), "cpu": np.array([1], np.int16)},
                                     always | {"submit_ns": np.array([2])}])))
    assert parts[0]["submit_ns"].tolist() == [2, 5] and parts[0]["cpu"].tolist() == [-1, 1]
