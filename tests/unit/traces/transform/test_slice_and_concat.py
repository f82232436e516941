"""`blkreel slice` takes rows with what belongs to them; `blkreel concat` joins traces, slices exactly."""

import json

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from small_trace import new_trace
from transformed import assert_valid, columns_of, of_another_machine
from tree import APP_START, COMPILE, GAME_DOWNLOAD, GAME_LOAD

import blkreel
from blkreel.common.errors import UsageError
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS
from blkreel.traces.transform.concat import concat
from blkreel.traces.transform.slice import Selection, slice_trace

SELECTIONS = {
    "time": (Selection(from_ns=2 * 10**9, to_ns=20 * 10**9),
             lambda rows, _: (rows["submit_ns"] >= 2 * 10**9) & (rows["submit_ns"] < 20 * 10**9)),
    "operation": (Selection(ops=("write", "flush")),
                  lambda rows, _: np.isin(rows["op"], [OPS["write"], OPS["flush"]])),
    "own": (Selection(own=True), lambda rows, _: rows["flags"] & FLAGS["own"] != 0),
    "offset": (Selection(offsets_bytes=(1 << 30, 2 << 30)),
               lambda rows, _: (rows["offset_bytes"] < 2 << 30)
               & (rows["offset_bytes"] + rows["length_bytes"] > 1 << 30)),
    "process": (Selection(processes=("supertuxkart",)),
                lambda rows, threads: np.isin(rows["tid"], [int(tid) for tid, thread in threads.items() if
                                                            "supertuxkart" in (thread["comm"], thread["process"])])),
    "two": (Selection(own=True, ops=("read",), to_ns=10**10),
            lambda rows, _: (rows["flags"] & FLAGS["own"] != 0) & (rows["op"] == 0) & (rows["submit_ns"] < 10**10)),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_the_rows_that_match_with_their_dependencies(tmp_path, name):
    selection, expected = SELECTIONS[name]
    trace = open_trace(GAME_DOWNLOAD)
    result = slice_trace(trace, tmp_path / "t.parquet", selection)
    before, after = columns_of(GAME_DOWNLOAD), assert_valid(tmp_path / "t.parquet")
    selected = np.flatnonzero(expected(before, trace.metadata["threads"]))
    assert 0 < len(selected) < trace.rows
    for column in set(before) - {"waited_on", "think_ns", "flags"}:
        assert (after[column] == before[column][selected]).all(), column
    kept = np.isin(before["waited_on"][selected], selected)
    assert (selected[after["waited_on"][kept]] == before["waited_on"][selected][kept]).all()
    assert (after["waited_on"][~kept] == -1).all()
    assert result.cut_dependencies == int((~kept & (before["waited_on"][selected] >= 0)).sum())
    metadata = open_trace(tmp_path / "t.parquet").metadata
    assert metadata["history"][0]["options"].keys() == selection.options().keys()
    assert "ledger" not in metadata and metadata["devices"] == trace.metadata["devices"]
    end_ns = (after["submit_ns"] + after["latency_ns"].clip(0)).max()
    assert metadata["duration_ns"] == end_ns - after["submit_ns"][0]


def test_operations_on_zones_touch_their_zone(tmp_path):
    """The reset of the first zone of a range was left out, and a replay found writes away from the write pointer."""
    device = {"name": "z", "zoned": "host-managed", "zone_bytes": 1 << 20}
    path = new_trace(tmp_path / "z.parquet", {"devices": [device]},
                     op=[OPS["zone_reset"]] * 4 + [OPS["zone_reset_all"], OPS["flush"]],
                     offset_bytes=[0, 1 << 20, 2 << 20, 3 << 20, 0, 0], length_bytes=0)
    slice_trace(open_trace(path), tmp_path / "t.parquet", Selection(offsets_bytes=(3 << 19, 3 << 20)))
    assert assert_valid(tmp_path / "t.parquet")["submit_ns"].tolist() == [1000, 2000, 4000]


def test_a_time_range_reads_only_its_row_groups_and_numbers_rows_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("blkreel.traces.format.writer.ROWS_PER_GROUP", 100)
    row = np.arange(1000)
    path = new_trace(tmp_path / "long.parquet", {}, submit_ns=row * 10, latency_ns=5, offset_bytes=row * 512,
                     length_bytes=512, waited_on=row - 1, think_ns=np.where(row, 5, 0))
    result = slice_trace(open_trace(path), tmp_path / "t.parquet", Selection(from_ns=4_505, to_ns=5_200))
    rows = assert_valid(tmp_path / "t.parquet")
    assert rows["offset_bytes"].tolist() == [number * 512 for number in range(451, 520)]
    assert rows["waited_on"].tolist() == list(range(-1, 68)) and result.cut_dependencies == 1


def test_rebase_moves_times_and_epoch(tmp_path):
    trace = open_trace(GAME_LOAD)
    slice_trace(trace, tmp_path / "t.parquet", Selection(from_ns=10**10), rebase=True)
    rows, metadata = assert_valid(tmp_path / "t.parquet"), open_trace(tmp_path / "t.parquet").metadata
    first_ns = min(time for time in columns_of(GAME_LOAD)["submit_ns"].tolist() if time >= 10**10)
    assert rows["submit_ns"][0] == 0 and metadata["epoch_ns"] == trace.metadata["epoch_ns"] + first_ns


def test_losses_of_the_time_range(tmp_path):
    path = blkreel.write_trace(tmp_path / "t.parquet", blkreel.open(APP_START).frame(), metadata={"lost": {
        "total": 5, "per_cpu": {"0": 2, "1": 3}, "intervals": [
            {"cpu": 0, "first_ns": 10**6, "last_ns": 2 * 10**6, "count": 2},
            {"cpu": 1, "first_ns": 10**9, "last_ns": 2 * 10**9, "count": 3}]}})
    losses = {(None, 5 * 10**8): 2, (15 * 10**8, None): 3, (3 * 10**9, None): 0}
    for number, (times, total) in enumerate(losses.items()):
        slice_trace(open_trace(path), tmp_path / f"{number}.parquet", Selection(*times))
        assert open_trace(tmp_path / f"{number}.parquet").metadata["lost"]["total"] == total


def test_a_warning_counts_the_recording_and_not_the_slice(tmp_path):
    source = new_trace(tmp_path / "t.parquet", {"import_warnings": ["8 I/Os have no latency"]},
                       submit_ns=np.arange(9) * 1000)
    slice_trace(open_trace(source), tmp_path / "a.parquet", Selection(to_ns=5000))
    slice_trace(open_trace(tmp_path / "a.parquet"), tmp_path / "b.parquet", Selection(to_ns=3000))
    warnings = open_trace(tmp_path / "b.parquet").metadata["import_warnings"]
    assert warnings == ["of the whole recording: 8 I/Os have no latency"]


def test_losses_keep_their_place_among_the_rows_where_the_total_is_not_known(tmp_path):
    """A capture without its last counts has a total that its intervals do not add up to."""
    trace = open_trace(APP_START)
    at_ns = 10**9
    path = blkreel.write_trace(tmp_path / "t.parquet", blkreel.open(APP_START).frame(), metadata={"lost": {
        "total": 9, "per_cpu": {}, "intervals": [{"cpu": 0, "first_ns": at_ns, "last_ns": at_ns, "count": 2}]}})
    slice_trace(open_trace(path), tmp_path / "s.parquet", Selection(from_ns=5 * 10**8), rebase=True)
    begin_ns = next(ns for ns in columns_of(str(trace.path))["submit_ns"] if ns >= 5 * 10**8)
    lost = open_trace(tmp_path / "s.parquet").metadata["lost"]
    assert lost["total"] == 9 and lost["intervals"][0]["first_ns"] == at_ns - begin_ns


def test_a_device_becomes_device_0(tmp_path):
    devices = [{"name": name, "path": f"/dev/{name}", "size_bytes": 1 << 30} for name in ("sda", "sdb")]
    path = new_trace(tmp_path / "t.parquet", {"devices": devices}, device=[0, 1, 1])
    slice_trace(open_trace(path), tmp_path / "b.parquet", Selection(devices=(1,)))
    assert assert_valid(tmp_path / "b.parquet")["device"].tolist() == [0, 0]
    assert open_trace(tmp_path / "b.parquet").metadata["devices"] == devices[1:]


@pytest.mark.parametrize("selection, text", [
    (Selection(processes=("supertuxkrat",)), "did you mean 'supertuxkart'"), (Selection(devices=(3,)), "no device 3"),
    (Selection(from_ns=10**15), "no I/O matches"), (Selection(from_ns=10**15, to_ns=10**16), "no I/O matches"),
    (Selection(processes=("nobody",)), "nobody")])
def test_nothing_to_select(tmp_path, selection, text):
    """The trace is named as the user does."""
    with pytest.raises(UsageError, match=text) as error:
        slice_trace(open_trace(GAME_LOAD), tmp_path / "t.parquet", selection)
    assert "game-load.parquet" in str(error.value)
    assert error.value.remedy.endswith((f"blkreel info {GAME_LOAD}", "did you mean 'supertuxkart'?"))
    assert not list(tmp_path.iterdir())


@cases(8)
@given(data=st.data())
def test_slices_by_time_concatenated_equal_the_original(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("slices")
    name = data.draw(st.sampled_from([APP_START, COMPILE]))
    trace, whole = open_trace(name), columns_of(name)
    last_ns = int(whole["submit_ns"][-1])
    cuts = sorted(data.draw(st.sets(st.sampled_from(whole["submit_ns"][1:].tolist()), min_size=1, max_size=4)))
    paths = []
    for number, (from_ns, to_ns) in enumerate(zip([None, *cuts], [*cuts, last_ns + 1], strict=True)):
        paths.append(directory / f"{number}.parquet")
        slice_trace(trace, paths[-1], Selection(from_ns, to_ns), rebase=data.draw(st.booleans()))
        assert_valid(paths[-1])
    # Joined in two steps, so that a joined slice is a slice again.
    middle = data.draw(st.integers(1, len(paths)))
    concat([open_trace(path) for path in paths[:middle]], directory / "head.parquet")
    assert_valid(directory / "head.parquet")
    concat([open_trace(path) for path in [directory / "head.parquet", *paths[middle:]]], directory / "whole.parquet")
    joined, metadata = assert_valid(directory / "whole.parquet"), open_trace(directory / "whole.parquet").metadata
    shift_ns = metadata["epoch_ns"] - trace.metadata["epoch_ns"]
    assert (joined["submit_ns"] + shift_ns == whole["submit_ns"]).all()
    for column in set(whole) - {"submit_ns"}:
        assert (joined[column] == whole[column]).all(), column
    for key in ("devices", "threads", "lost", "command", "host", "kernel", "source_format"):
        assert metadata.get(key) == trace.metadata.get(key), key
    assert "part_of" not in metadata


def test_rebased_slices_of_a_trace_without_an_epoch_keep_their_distance(tmp_path):
    """Imported and generated traces may have no epoch_ns; an unknown epoch is not 0."""
    trace = open_trace(new_trace(tmp_path / "t.parquet", {}, submit_ns=[5, 1000, 5000, 9000]))
    assert "epoch_ns" not in trace.metadata
    for number, times in enumerate([(0, 2000), (2000, 6000), (6000, None)]):
        slice_trace(trace, tmp_path / f"{number}.parquet", Selection(*times), rebase=True)
    slices = [open_trace(tmp_path / f"{number}.parquet") for number in range(3)]
    concat(slices[:2], tmp_path / "head.parquet")
    concat([open_trace(tmp_path / "head.parquet"), slices[2]], tmp_path / "whole.parquet")
    assert assert_valid(tmp_path / "whole.parquet")["submit_ns"].tolist() == [0, 995, 4995, 8995]


def test_slices_keep_a_drive_of_two_boots_apart(tmp_path):
    """Merged captures of two days have an entry for the drive of each day, which may be equal."""
    drive = {"name": "sda", "path": "/dev/sda", "size_bytes": 1 << 30}
    path = new_trace(tmp_path / "t.parquet", {"devices": [drive, drive]}, device=[0, 1, 0, 1], submit_ns=[1, 2, 3, 4])
    for name, times in (("a", (None, 3)), ("b", (3, None))):
        slice_trace(open_trace(path), tmp_path / f"{name}.parquet", Selection(*times))
    concat([open_trace(tmp_path / f"{name}.parquet") for name in "ab"], tmp_path / "whole.parquet")
    assert assert_valid(tmp_path / "whole.parquet")["device"].tolist() == [0, 1, 0, 1]


def test_other_traces_follow_each_other(tmp_path):
    names = [APP_START, of_another_machine(COMPILE, tmp_path / "other.parquet")]
    result = concat([open_trace(name) for name in names], tmp_path / "t.parquet", pause_ns=10**9)
    rows, (first, second) = assert_valid(tmp_path / "t.parquet"), map(columns_of, names)
    count = len(first["submit_ns"])
    end_ns = int((first["submit_ns"] + first["latency_ns"]).max())
    assert rows["submit_ns"][count] == end_ns + 10**9
    assert (np.diff(rows["submit_ns"][count:]) == np.diff(second["submit_ns"])).all()
    linked = second["waited_on"] >= 0
    assert (rows["waited_on"][count:][linked] == second["waited_on"][linked] + count).all()
    metadata = open_trace(tmp_path / "t.parquet").metadata
    assert len(metadata["devices"]) == 2 and set(rows["device"][count:]) == {1}
    threads = metadata["threads"]
    for name, part in zip(names, (rows["tid"][:count], rows["tid"][count:]), strict=True):
        before = open_trace(name).metadata["threads"]
        comms = [before[str(tid)]["comm"] for tid in columns_of(name)["tid"] if str(tid) in before]
        assert [threads[str(tid)]["comm"] for tid in part if str(tid) in threads] == comms
    assert not set(rows["tid"][:count]) & set(rows["tid"][count:]), "threads of different boots are not one"
    assert "own distance is not used" in result.notes[0]
    concat([open_trace(name) for name in names], tmp_path / "one.parquet", onto_one=True)
    assert set(assert_valid(tmp_path / "one.parquet")["device"]) == {0}
    assert len(open_trace(tmp_path / "one.parquet").metadata["devices"]) == 1


def test_the_commands(tmp_path, blkreel):
    for number, words in enumerate((("--to", "20s"), ("--from", "20s"))):
        blkreel("slice", GAME_LOAD, "-o", f"{number}.parquet", *words, cwd=tmp_path)
    result = blkreel("concat", "0.parquet", "1.parquet", "-o", "whole.parquet", cwd=tmp_path)
    assert "restored" in result.stderr and "2,906 I/Os" in result.stdout
    for column, values in columns_of(GAME_LOAD).items():
        assert (columns_of(tmp_path / "whole.parquet")[column] == values).all()
    shown = blkreel("info", "whole.parquet", cwd=tmp_path).stdout
    assert "made by   slice to_ns=20000000000, from game-load.parquet" in shown
    assert "made by   concat, from 0.parquet, 1.parquet" in shown
    for words in (["--offset", "5"], ["--offset", "9..5"], ["--from", "2s", "--to", "1s"], ["--process", "nobody"]):
        result = blkreel("slice", GAME_LOAD, "-o", "x.parquet", *words, check=False, cwd=tmp_path)
        assert result.returncode == 2, words
    result = blkreel("slice", GAME_LOAD, "-o", "0.parquet", "--json", check=False, cwd=tmp_path)
    assert json.loads(result.stdout)["error"]["code"] == "output_exists"
