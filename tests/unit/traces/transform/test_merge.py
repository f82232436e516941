"""`blkreel merge` puts traces on one clock, and keeps dependencies, devices and threads apart."""

import json
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from small_trace import new_trace
from transformed import assert_valid, columns_of, of_another_machine
from tree import APP_START, COMPILE, GAME_DOWNLOAD

import blkreel
from blkreel.common.errors import BlkreelError, TraceError, UsageError
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, TRACE_SCHEMA
from blkreel.traces.samples import sample_path
from blkreel.traces.transform.anonymize import anonymize
from blkreel.traces.transform.concat import concat
from blkreel.traces.transform.merge import merge
from blkreel.traces.transform.rows import RowNumbers
from blkreel.traces.transform.slice import Selection, slice_trace


def test_two_slices_by_process_are_the_original_again(tmp_path):
    """Of one boot, so on one clock: times, devices and threads are the same as before."""
    whole = columns_of(GAME_DOWNLOAD)
    trace = open_trace(GAME_DOWNLOAD)
    slice_trace(trace, tmp_path / "reads.parquet", Selection(ops=("read",)), rebase=True)
    slice_trace(trace, tmp_path / "rest.parquet", Selection(ops=("write", "flush", "discard")))
    result = merge([open_trace(tmp_path / f"{name}.parquet") for name in ("reads", "rest")], tmp_path / "t.parquet")
    rows, metadata = assert_valid(tmp_path / "t.parquet"), open_trace(tmp_path / "t.parquet").metadata
    assert (rows["submit_ns"] + metadata["epoch_ns"] == whole["submit_ns"] + trace.metadata["epoch_ns"]).all()
    for column in ("offset_bytes", "length_bytes", "op", "device", "tid", "latency_ns"):
        assert sorted(zip(rows["submit_ns"] + metadata["epoch_ns"], rows[column], strict=True)) == sorted(
            zip(whole["submit_ns"] + trace.metadata["epoch_ns"], whole[column], strict=True))
    same_kind = (whole["waited_on"] >= 0) & ((whole["op"] == 0) == (whole["op"][whole["waited_on"]] == 0))
    assert (rows["waited_on"] >= 0).sum() == same_kind.sum()
    assert metadata["clock_uncertainty_ns"] == 0 and "one clock" in result.notes[0]


def test_traces_of_other_boots_are_aligned_by_their_start(tmp_path):
    names = [APP_START, of_another_machine(COMPILE, tmp_path / "other.parquet")]
    merge([open_trace(name) for name in names], tmp_path / "t.parquet", align="start")
    rows, metadata = assert_valid(tmp_path / "t.parquet"), open_trace(tmp_path / "t.parquet").metadata
    for device, name in enumerate(names):
        before, part = columns_of(name), rows["device"] == device
        assert (rows["submit_ns"][part] == before["submit_ns"] - before["submit_ns"][0]).all()
        assert (rows["waited_on"][part] >= 0).sum() == (before["waited_on"] >= 0).sum()
        at = np.flatnonzero(part)
        linked = before["waited_on"] >= 0
        assert (rows["waited_on"][at[linked]] == at[before["waited_on"][linked]]).all()
    assert metadata["clock_uncertainty_ns"] is None and len(metadata["devices"]) == 2


@pytest.mark.parametrize("join", [merge, concat])
@pytest.mark.parametrize(("selections", "twice"), [
    ((Selection(to_ns=10**9), Selection(from_ns=9 * 10**8)), True),  # as two saves of a flight recorder
    ((Selection(from_ns=9 * 10**8), Selection(ops=("read",))), True),
    ((Selection(to_ns=10**9), Selection(from_ns=10**9)), False),
    ((Selection(ops=("read",)), Selection(ops=("write", "flush", "discard"))), False)])
def test_what_two_traces_have_is_noted(tmp_path, join, selections, twice):
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    for path, selection in zip(paths, selections, strict=True):
        slice_trace(open_trace(GAME_DOWNLOAD), path, selection, rebase=True)
    result = join([open_trace(path) for path in paths], tmp_path / "t.parquet")
    assert [note[:14] for note in result.notes if "the same I/Os" in note] == ["traces 0 and 1"] * twice


def test_traces_with_times_of_the_wall_clock_are_placed_by_them(tmp_path):
    """Of a program that writes them, without clock_pairs: they were refused as without a wall clock."""
    paths = [new_trace(tmp_path / f"{epoch_ns}.parquet", {"clock": "realtime", "epoch_ns": epoch_ns},
                       submit_ns=[10, 20]) for epoch_ns in (10**18, 10**18 + 15)]
    merge([open_trace(path) for path in paths], tmp_path / "t.parquet")
    assert assert_valid(tmp_path / "t.parquet")["submit_ns"].tolist() == [10, 20, 25, 35]


@pytest.mark.parametrize("metadata", [{"clock": "relative", "epoch_ns": 5}, {}])
def test_slices_of_a_recording_without_a_wall_clock_have_its_clock(tmp_path, metadata):
    """They were refused, and --align start, the remedy, moved the later one to the start of the other."""
    path = new_trace(tmp_path / "a.parquet", metadata, submit_ns=[10, 20, 30], op=[0, 1, 0])
    for op, rebase in (("read", False), ("write", True)):
        slice_trace(open_trace(path), tmp_path / f"{op}.parquet", Selection(ops=(op,)), rebase=rebase)
    merge([open_trace(tmp_path / f"{op}.parquet") for op in ("write", "read")], tmp_path / "t.parquet")
    rows = assert_valid(tmp_path / "t.parquet")
    assert rows["op"].tolist() == [0, 1, 0] and np.diff(rows["submit_ns"]).tolist() == [10, 10]


@pytest.mark.parametrize(("onto_one", "numbers"), [(False, [0, 2, 1, 3]), (True, [0, 0, 0, 0])])
def test_devices_without_a_table_stay_apart(tmp_path, onto_one, numbers):
    """Of programs that write rows only: the I/O of both traces was of one device, or of none in the table."""
    paths = [new_trace(tmp_path / "a.parquet", {}, submit_ns=[0, 10], device=[0, 1]),
             new_trace(tmp_path / "b.parquet", {"devices": [{"name": "x"}, {"name": "y"}]}, submit_ns=[0, 10],
                       device=[0, 1])]
    merge([open_trace(path) for path in paths], tmp_path / "t.parquet", align="start", onto_one=onto_one)
    assert assert_valid(tmp_path / "t.parquet")["device"].tolist() == numbers


@pytest.mark.parametrize("sizes", [(8192, None), (None, 8192), (8192, None, 4096)])
def test_one_device_has_room_for_ios_of_one_without_a_size(tmp_path, sizes):
    """Imports state none: the trace was invalid, with I/Os beyond the size of the other device."""
    paths = [new_trace(tmp_path / f"{number}.parquet", drive_bytes=size, submit_ns=[0],
                       offset_bytes=[0 if size else 1 << 40]) for number, size in enumerate(sizes)]
    merge([open_trace(path) for path in paths], tmp_path / "t.parquet", align="start", onto_one=True)
    assert assert_valid(tmp_path / "t.parquet")["device"].tolist() == [0] * len(sizes)


@pytest.mark.parametrize(("column", "greatest"), [("tid", 2**31 - 5), ("inode", 2**63 - 5)])
def test_ids_beyond_those_of_a_trace_are_refused(tmp_path, column, greatest):
    """Those of the second trace became negative: an invalid trace, and its I/O had no names."""
    schema = TRACE_SCHEMA.append(pa.field("inode", pa.int64(), nullable=False))
    traces = [open_trace(new_trace(tmp_path / f"{number}.parquet", {}, schema=schema, submit_ns=[0, 10],
                                   **{"inode": -1, column: ids}))
              for number, ids in enumerate(([greatest] * 2, [-1, 3], [-1, 4]))]
    merge([traces[0], traces[1]], tmp_path / "t.parquet", align="start")
    assert max(columns_of(tmp_path / "t.parquet")[column]) == greatest + 4
    with pytest.raises(UsageError, match="numbers for; join fewer"):
        merge([traces[0], traces[2]], tmp_path / "t.parquet", align="start", force=True)


def test_anonymized_traces_have_no_wall_clock(tmp_path):
    """Recorded a day apart, they were merged as of the same time, the begin of 1970."""
    paths = [new_trace(tmp_path / f"{number}.parquet", {"clock": "realtime", "epoch_ns": number * 86_400 * 10**9},
                       submit_ns=[10]) for number in (1, 2)]
    shared = [anonymize(open_trace(path), path.with_suffix(".shared"), key=bytes(32)).path for path in paths]
    with pytest.raises(UsageError, match="no wall clock recorded"):
        merge([open_trace(path) for path in shared], tmp_path / "t.parquet")


def test_a_number_that_the_kernel_gave_again_is_another_thread(tmp_path):
    """Two captures of one boot: 7 is `reader` in both, 8 was a thread that ended, and then one of another program."""
    paths, recorded = [], [{"7": "reader", "8": "first"}, {"7": "reader", "8": "second"}, {"7": "reader"}]
    for number, names in enumerate(recorded):
        paths.append(new_trace(tmp_path / f"{number}.parquet", {
            "host": "a", "epoch_ns": number * 1000, "clock_pairs": [{"monotonic_ns": 1000, "realtime_ns": 10**18}],
            "threads": {tid: {"pid": int(tid), "comm": name, "process": name, "names": [name]}
                        for tid, name in names.items()}}, submit_ns=[10, 20][:len(names)], tid=[7, 8][:len(names)]))
    merge([open_trace(path) for path in paths], tmp_path / "t.parquet")
    rows, metadata = assert_valid(tmp_path / "t.parquet"), open_trace(tmp_path / "t.parquet").metadata
    assert [metadata["threads"][str(tid)]["comm"] for tid in rows["tid"]] == [
        "reader", "first", "reader", "second", "reader"]
    assert rows["tid"][0] == rows["tid"][4]


@pytest.mark.parametrize("later_first", [False, True])
def test_a_thread_that_was_renamed_between_two_captures_has_both_names(tmp_path, later_first):
    """Its name was that of the trace named first, and the other was lost."""
    paths = [new_trace(tmp_path / f"{number}.parquet", {
        "host": "a", "epoch_ns": number * 1000, "clock_pairs": [{"monotonic_ns": 1000, "realtime_ns": 10**18}],
        "threads": {"7": {"pid": 7, "comm": names[-1], "process": "game", "names": names}}}, submit_ns=[10], tid=[7])
        for number, names in enumerate((["game"], ["game", "loader"]))]
    merge([open_trace(path) for path in (reversed(paths) if later_first else paths)], tmp_path / "t.parquet")
    assert open_trace(tmp_path / "t.parquet").metadata["threads"] == {
        "7": {"pid": 7, "comm": "loader", "process": "game", "names": ["game", "loader"]}}


def test_a_file_that_got_the_number_of_a_deleted_one_is_another_file(tmp_path):
    metadata = {"host": "a", "clock_pairs": [{"monotonic_ns": 1000, "realtime_ns": 10**18}]}
    schema = TRACE_SCHEMA.append(pa.field("inode", pa.int64(), nullable=False))
    paths = [new_trace(tmp_path / f"{path}.parquet", {
        **metadata, "epoch_ns": epoch_ns, "files": [{"inode": 20, "filesystem": "7:0", "path": f"/{path}"}]},
        submit_ns=[10], inode=[20], schema=schema) for epoch_ns, path in enumerate(("old", "new", "old again"))]
    merge([open_trace(path) for path in paths], tmp_path / "t.parquet")
    rows, merged = assert_valid(tmp_path / "t.parquet"), open_trace(tmp_path / "t.parquet").metadata
    files = {file["inode"]: file["path"] for file in merged["files"]}
    assert [files[inode] for inode in rows["inode"]] == ["/old", "/new", "/old again"]
    assert set(rows["inode"] % (1 << 48)) == {20}


def test_files_of_two_file_systems_with_one_number_are_the_same_in_the_next_trace(tmp_path):
    metadata = {"host": "a", "clock_pairs": [{"monotonic_ns": 1000, "realtime_ns": 10**18}],
                "files": [{"inode": 20, "filesystem": f"7:{number}", "path": f"/{number}"} for number in (0, 1)]}
    schema = TRACE_SCHEMA.append(pa.field("inode", pa.int64(), nullable=False))
    paths = [new_trace(tmp_path / f"{epoch_ns}.parquet", {**metadata, "epoch_ns": epoch_ns}, submit_ns=[10], inode=[20],
                       schema=schema) for epoch_ns in range(2)]
    merge([open_trace(path) for path in paths], tmp_path / "t.parquet")
    assert open_trace(tmp_path / "t.parquet").metadata["files"] == metadata["files"]


def test_traces_of_two_machines_are_aligned_by_their_wall_clocks(tmp_path):
    paths = []
    for number, host in enumerate(("a", "b")):
        pairs = [{"monotonic_ns": 1000 * number, "realtime_ns": 10**18},
                 {"monotonic_ns": 10**9, "realtime_ns": 2 * 10**18}]
        paths.append(new_trace(tmp_path / f"{host}.parquet", {
            "host": host, "epoch_ns": 500, "clock_pairs": pairs, "devices": [{"name": host, "size_bytes": 8192}]},
            submit_ns=[10, 20]))
    result = merge([open_trace(path) for path in paths], tmp_path / "t.parquet")
    # The second machine's clock showed 1000 ns more at the same wall time, so its I/Os were 1000 ns earlier.
    assert columns_of(tmp_path / "t.parquet")["submit_ns"].tolist() == [10, 20, 1010, 1020]
    assert columns_of(tmp_path / "t.parquet")["device"].tolist() == [1, 1, 0, 0]
    assert open_trace(tmp_path / "t.parquet").metadata["epoch_ns"] == -500
    assert "synchronization is not known" in result.notes[0]


def test_without_a_wall_clock(tmp_path):
    path = new_trace(tmp_path / "a.parquet", {}, submit_ns=[10])
    with pytest.raises(UsageError, match="no wall clock recorded; .*--align start"):
        merge([open_trace(path), open_trace(path)], tmp_path / "t.parquet")
    merge([open_trace(path), open_trace(path)], tmp_path / "t.parquet", align="start")
    assert "epoch_ns" not in open_trace(tmp_path / "t.parquet").metadata, "an unknown epoch stays unknown"


def test_each_trace_is_a_stream_with_an_offset_and_a_role(tmp_path):
    """The second trace has two streams itself. Rows of a background are no workload I/O."""
    rows = {"submit_ns": [0, 10], "offset_bytes": [0, 4096], "length_bytes": [512, 512], "op": [0, 1],
            "latency_ns": [5, 5], "flags": [FLAGS["own"], 0]}
    paths = [blkreel.write_trace(tmp_path / "a.parquet", rows),
             blkreel.write_trace(tmp_path / "b.parquet", {**rows, "stream": [0, 1]}),
             blkreel.write_trace(tmp_path / "c.parquet", rows)]
    merge([open_trace(path) for path in paths], tmp_path / "t.parquet", align="start", offsets_ns={0: 5, 2: 100},
          backgrounds=[1])
    merged = columns_of(tmp_path / "t.parquet")
    assert merged["submit_ns"].tolist() == [0, 5, 10, 15, 100, 110]
    assert merged["stream"].tolist() == [1, 0, 2, 0, 3, 3]
    role, own = FLAGS["role_background"], FLAGS["own"]
    assert merged["flags"].tolist() == [role, own, role, 0, own, 0]
    figures = blkreel.open(tmp_path / "t.parquet").figures
    assert figures["read"]["ops"] == 2 and figures["write"]["ops"] == 2, "without the background"
    for wrong in ({"offsets_ns": {3: 1}}, {"backgrounds": [-1]}):
        with pytest.raises(UsageError, match="no trace"):
            merge([open_trace(path) for path in paths], tmp_path / "u.parquet", align="start", **wrong)


@pytest.mark.parametrize(("join", "options"), [(concat, {}), (merge, {"align": "start"})])
def test_what_one_source_lacks_the_new_trace_lacks(tmp_path, join, options):
    """Else a replay would repeat times of a clock with steps of a second. Rows without a latency show that themselves.
    """
    described = [{"clock_resolution_ns": 1, "source_lacks": ["latency", "names"]},
                 {"clock_resolution_ns": 10**9, "source_lacks": ["latency", "operation"]},
                 {"times_step_ns": 10**8, "source_lacks": ["event"]}, {}]
    traces = [open_trace(new_trace(tmp_path / f"{number}.parquet", metadata, submit_ns=[0]))
              for number, metadata in enumerate(described)]
    join(traces, tmp_path / "all.parquet", **options)
    metadata = open_trace(tmp_path / "all.parquet").metadata
    assert metadata["clock_resolution_ns"] == 10**9 and metadata["times_step_ns"] == 10**8
    assert metadata["source_lacks"] == ["names", "operation", "event"]
    join(traces[:2], tmp_path / "two.parquet", **options)
    assert "latency" in open_trace(tmp_path / "two.parquet").metadata["source_lacks"]


@pytest.mark.parametrize("command", ["slice", "concat", "merge", "anonymize"])
def test_what_qualifies_a_recording_qualifies_what_is_made_of_it(tmp_path, blkreel, command):
    """Else a copy of a trace that is not to be trusted would be valid."""
    use = open_trace(sample_path("app-start")).metadata["emulated"][0]
    assert use["late_ios"] > 0.01 * use["ios"]
    source = new_trace(tmp_path / "t.parquet", {
        "emulated": [{**use, "name": "secret-name", "drive": "nil:secret.toml"}],
        "ledger": {"missing": ["secret-drive is gone"], "commands_unseen": 7, "uses_lost": 3,
                   "uses_mapped": 2, "computed_ns": 90_000, "longest_computed_ns": 50_000},
        "command": ["make"], "cpu_count": 2, "duration_ns": 250_000, "unmatched": 6,
        "lost": {"unit": "events", "total": 4, "per_cpu": {}, "intervals": []}},
        submit_ns=np.arange(200) * 1000, latency_ns=500)
    other = new_trace(tmp_path / "o.parquet", {"lost": {"total": 0}}, submit_ns=np.arange(200) * 1000, latency_ns=500)
    options = {"slice": (source, "--to", "100us"), "concat": (source, other), "anonymize": (source,),
               "merge": (source, other, "--align", "start", "--onto", "one")}[command]
    blkreel(command, *options, "-o", tmp_path / "made.parquet")
    verdict = json.loads(blkreel("report", tmp_path / "made.parquet", "--json").stdout)["entry"]["runs"][0]["verdict"]
    assert verdict["level"] == "qualified"
    assert {"emulated_late", "incomplete_capture"} <= {reason["code"] for reason in verdict["reasons"]}
    metadata = open_trace(tmp_path / "made.parquet").metadata
    assert metadata["ledger"] == {"missing": metadata["ledger"]["missing"], "commands_unseen": 7, "uses_lost": 3,
                                  "uses_mapped": 2, "least_computed_ns": 50_000, "computed_within_ns": 250_000}
    assert metadata["unmatched"] == 6
    assert metadata["lost"] == {"unit": "events", "total": 4, "per_cpu": {}, "intervals": []}
    assert command != "anonymize" or "secret" not in json.dumps(metadata)


@pytest.mark.parametrize("command", ["slice", "concat", "anonymize", None])
def test_what_qualifies_a_run_qualifies_what_is_made_of_it(tmp_path, blkreel, command):
    """A run lacks the I/Os that its trace lacks."""
    source = new_trace(tmp_path / "t.parquet", {
        "ledger": {"missing": ["secret-drive is gone"], "commands_unseen": 7},
        "lost": {"unit": "events", "total": 4, "per_cpu": {}, "intervals": []}}, submit_ns=np.arange(9) * 1000)
    drive = ("--on", "nil:1GiB,clock=virtual", "-o")
    blkreel("replay", source, *drive, tmp_path / "run", check=False)
    made = tmp_path / (f"{command}.parquet" if command else "run")
    if command:
        options = {"slice": ("--from", "0s"), "concat": (tmp_path / "run", "--onto", "one")}.get(command, ())
        blkreel(command, tmp_path / "run", *options, "-o", made)
    document = json.loads(blkreel("replay", made, *drive, tmp_path / "again", "--json", check=False).stdout)
    codes = {reason["code"] for reason in document["run"]["verdict"]["reasons"]}
    assert {"lost_events", "incomplete_capture", "unseen_commands"} <= codes
    assert command != "anonymize" or "secret" not in json.dumps(open_trace(made).metadata)


def test_slices_of_an_import_have_its_device_and_threads(tmp_path):
    """An import has no host, by which two recordings are of one boot."""
    source = new_trace(tmp_path / "t.parquet", {
        "threads": {"5": {"comm": "a"}}, "devices": [{"name": "8:0", "path": "8:0"}]},
        submit_ns=np.arange(9) * 1000, tid=5, op=np.arange(9) % 2)
    for op in ("read", "write"):
        slice_trace(open_trace(source), tmp_path / f"{op}.parquet", Selection(ops=(op,)))
    merge([open_trace(tmp_path / f"{op}.parquet") for op in ("read", "write")], tmp_path / "m.parquet", align="start",
          offsets_ns={1: 1000})
    before, after = columns_of(source), columns_of(tmp_path / "m.parquet")
    assert all((before[name] == after[name]).all() for name in before)
    metadata = open_trace(tmp_path / "m.parquet").metadata
    assert len(metadata["devices"]) == 1 and list(metadata["threads"]) == ["5"]


def test_slices_count_the_commands_of_their_recording_once(tmp_path):
    """The same holds for losses without times, in slices of slices and in slices by operation."""
    new_trace(tmp_path / "t.parquet", {"ledger": {"commands_unseen": 7},
                                       "lost": {"total": 5, "per_cpu": {}, "intervals": []}},
              submit_ns=np.arange(9) * 1000)
    for name, of, selection in (("a", "t", {"to_ns": 4000}), ("b", "t", {"from_ns": 4000}), ("c", "b", {"to_ns": 6000}),
                                ("d", "b", {"ops": ("read",)})):
        slice_trace(open_trace(tmp_path / f"{of}.parquet"), tmp_path / f"{name}.parquet", Selection(**selection))
    for names in ("ab", "acd"):
        concat([open_trace(tmp_path / f"{name}.parquet") for name in names], tmp_path / f"{names}.parquet")
        metadata = open_trace(tmp_path / f"{names}.parquet").metadata
        assert metadata["ledger"] == {"commands_unseen": 7} and metadata["lost"]["total"] == 5


def volume_trace(path, host, *names):
    """A trace of devices of which dm-0 is a volume on sda."""
    parts = [{"name": "sda", "volume_offset_bytes": 0, "length_bytes": 1 << 30, "offset_bytes": 0}]
    volumes = [{"name": "dm-0", "path": "/dev/dm-0", "label": "", "kind": "dm-crypt", "parts": parts}]
    return open_trace(new_trace(path, {
        "host": host, "devices": [{"name": name, "layer": "request"} for name in names],
        **({"volumes": volumes, "storage_layer": "both"} if "dm-0" in names else {})},
        submit_ns=[0] * len(names), device=list(range(len(names)))))


def test_the_layers_of_a_volume_stay_apart(tmp_path):
    """A report of a volume and of the drive below it would count each I/O twice."""
    both, drive = (volume_trace(tmp_path / f"{len(names)}.parquet", "a", *names)
                   for names in (("sda", "dm-0"), ["sdb"]))
    for number, traces in enumerate(([both, drive], [drive, both])):
        path = tmp_path / f"merged-{number}.parquet"
        merge(traces, path, align="start")
        assert open_trace(path).metadata["storage_layer"] == "both"
        with pytest.raises(TraceError, match="each I/O twice"):
            _ = blkreel.open(path).metrics
    other = volume_trace(tmp_path / "other.parquet", "b", "sda")
    for traces, options in (([other, both], {}), ([both, other], {}), ([both, drive], {"onto_one": True})):
        with pytest.raises(TraceError, match="2.parquet has the I/Os of a volume.* each I/O twice"):
            merge(traces, tmp_path / "t.parquet", align="start", **options)
    volume = volume_trace(tmp_path / "volume.parquet", "a", "dm-0")
    merge([volume, other], tmp_path / "t.parquet", align="start")
    assert blkreel.open(tmp_path / "t.parquet").figures["read"]["ops"] == 2, "sda of the other machine is not below it"


@pytest.mark.kernel
@pytest.mark.parametrize("transform", [lambda trace, output: slice_trace(trace, output, Selection(ops=("write",))),
                                       lambda trace, output: merge([trace, trace], output, align="start")],
                         ids=["slice", "merge"])
def test_a_full_disk_is_named_also_for_temporary_files(tiny_filesystem, transform):
    with open(tiny_filesystem / "filler", "wb", buffering=0) as filler:
        filler.write(bytes((1 << 20) - 8192))
    with pytest.raises(BlkreelError, match=f"no space left for .*t.parquet; free some space .df -h {tiny_filesystem}"):
        transform(open_trace(GAME_DOWNLOAD), tiny_filesystem / "t.parquet")
    assert [path.name for path in tiny_filesystem.iterdir()] == ["filler"]


@pytest.mark.kernel
def test_numbers_of_rows_that_were_not_put_are_read_on_a_full_disk(tiny_filesystem):
    """As of a slice that skips row groups; in a mapped file they are a SIGBUS."""
    with closing(RowNumbers(tiny_filesystem, 1 << 20)) as numbers:
        numbers.put(5, np.array([7, -1]))
        with open(tiny_filesystem / "filler", "wb", buffering=0) as filler:
            filler.write(bytes(1 << 20))
        assert numbers.of(np.array([-1, 5, 6, 1 << 19, 1 << 20])).tolist() == [-1, 7, -1, -1, -1]
