"""`blkreel anonymize`: no name is left in the file, and everything that a replay or a report needs is."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from quiet import progress
from small_trace import new_trace
from transformed import assert_valid, columns_of, valid_rows
from tree import APP_START, COMPILE, GAME_LOAD

import blkreel
from blkreel.common.errors import TraceError, UsageError
from blkreel.replay.predict.prediction import certify
from blkreel.replay.simulated.spec import typical_drives
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, WRITE_FLAGS
from blkreel.traces.format.trace import Trace
from blkreel.traces.transform.anonymize import anonymize
from blkreel.traces.transform.slice import Selection, slice_trace

KEY = bytes(range(32))
PLANTED = ["Walter-Secretname", "secret-host", "SECRETSERIAL01", "secret-model", "secret_firmware", "/home/secretuser",
           "secret-title", "secret-program", "secret.slice", "secret-path", "secret-warning", "secret-kernel"]


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A trace with planted names in every place that has text, and ids that are as telling."""
    rows = blkreel.open(GAME_LOAD).frame()
    threads = {str(tid): {"pid": int(tid), "comm": "secret-program", "process": "Walter-Secretname",
                          "names": ["sh", "secret-program"], "cgroup": "/user/secret.slice/x"}
               for tid in rows.tid.unique()}
    threads |= {tid: {**thread, "comm": thread["comm"], "process": "secret-program"} for tid, thread in
                open_trace(GAME_LOAD).metadata["threads"].items() if thread["comm"].startswith("kworker")}
    inode = int(rows.inode.max())
    return blkreel.write_trace(tmp_path_factory.mktemp("named") / "secret-path.parquet", rows, like=GAME_LOAD,
                               metadata={
        "host": "secret-host", "title": "secret-title", "description": "of secret-title",
        "kernel": "6.1.0-secret-kernel",
        "command": ["/home/secretuser/secret-program", "--user", "Walter-Secretname"], "threads": threads,
        "files": [{"filesystem": "8:1", "inode": inode, "path": "/home/secretuser/secret-path/a"}],
        "filters": {"cgroup": "secret.slice"}, "import_warnings": ["secret-warning in /home/secretuser"],
        "volumes": [{"name": "secret-path", "path": "/dev/secret-path", "label": "secret-title", "kind": "dm-crypt",
                     "parts": [{"name": "secret-model", "volume_offset_bytes": 0, "length_bytes": 1 << 36,
                                "offset_bytes": 0}]}],
        "an_unknown_key": {"of": "secret-host"}, "clock_pairs": [{"monotonic_ns": 1, "realtime_ns": 1_795_276_800_393}],
        "devices": [{"name": "secret-path", "path": "/dev/secret-path", "model": "secret-model", "kind": "disk",
                     "firmware": "secret_firmware", "serial_hash": "SECRETSERIAL01", "size_bytes": 1 << 36,
                     "backing_file": "/home/secretuser/image", "logical_block_bytes": 512}]})


def everything_in(path):
    """All bytes of a file, and its pages and metadata without compression."""
    pq.write_table(pq.read_table(path), path.with_suffix(".plain"), compression="none", use_dictionary=True)
    table = pq.read_table(path)
    values = b"".join(np.ascontiguousarray(table[name].to_numpy()).tobytes() for name in table.column_names)
    return path.read_bytes() + path.with_suffix(".plain").read_bytes() + values + repr(pq.read_metadata(path)).encode()


def test_numbers_in_order_of_appearance(tmp_path, monkeypatch):
    """Rows of later batches, which lie between, keep the numbers of the earlier ones."""
    inodes, cgroups = [70, 0, 70, -1, 30, 50, 30, 90, 70, 10], [5, 5, 5, 5, 0, 5, 5, 2, 5, 9]
    flags = [0, *(FLAGS[name] for name in WRITE_FLAGS), 0, 0, 0]
    blkreel.write_trace(tmp_path / "t.parquet", {
        "submit_ns": np.arange(10), "latency_ns": np.full(10, 1), "op": ["write"] * 10, "flags": np.array(flags),
        "offset_bytes": np.zeros(10, int), "length_bytes": np.full(10, 512), "inode": np.array(inodes),
        "cgroup": np.array(cgroups)}, metadata={
        "files": [{"filesystem": "8:1", "inode": inode, "path": f"/{inode}"} for inode in (90, 70, 1, 2**63)]})
    batches = Trace.batches
    monkeypatch.setattr(Trace, "batches", lambda trace, columns=None, rows=4: batches(trace, columns, 4))
    anonymize(open_trace(tmp_path / "t.parquet"), tmp_path / "a.parquet", key=KEY)
    after = columns_of(tmp_path / "a.parquet")
    assert after["inode"].tolist() == [1, 0, 1, -1, 2, 3, 2, 4, 1, 5]
    assert after["flags"].tolist() == flags
    assert after["cgroup"].tolist() == [1, 1, 1, 1, 0, 1, 1, 2, 1, 3]
    assert [file["inode"] for file in open_trace(tmp_path / "a.parquet").metadata["files"]] == [4, 1]
    monkeypatch.setattr("blkreel.traces.transform.anonymize._WRITER_BYTES", 145 << 20)
    with pytest.raises(TraceError, match="the I/Os have too many files or cgroups"):
        anonymize(open_trace(tmp_path / "t.parquet"), tmp_path / "b.parquet", key=KEY)


@pytest.mark.parametrize("region_bytes", [None, 1 << 30])
def test_no_planted_name_is_left(named, tmp_path, region_bytes):
    anonymize(open_trace(named), tmp_path / "t.parquet", key=KEY, region_bytes=region_bytes)
    before, after = everything_in(named), everything_in(tmp_path / "t.parquet")
    for name in PLANTED:
        assert name.encode() in before, f"{name} was not planted"
        assert name.encode() not in after and name.encode().lower() not in after.lower(), name
    inode = int(columns_of(named)["inode"].max())
    assert inode not in columns_of(tmp_path / "t.parquet")["inode"]
    assert open_trace(named).footer.identity.encode() not in after, "a hash of the original is a link to it"
    assert b"1795276800393" in before and b"1795276800393" not in after, "the date"


@pytest.mark.parametrize(("region_bytes", "offset_bytes"), [(None, 4096), (1 << 30, None)])
def test_the_layers_of_a_volume_stay_apart(tmp_path, region_bytes, offset_bytes):
    """A report of a volume and of the drive below it would count each I/O twice."""
    parts = [{"name": name, "volume_offset_bytes": 0, "length_bytes": 4096, "offset_bytes": 4096}
             for name in ("sda", "sdb")]
    new_trace(tmp_path / "t.parquet", {
        "devices": [{"name": name, "layer": "request", "size_bytes": 1 << 36} for name in ("sda", "md0")],
        "storage_layer": "both",
        "volumes": [{"name": "md0", "path": "/dev/md0", "label": "", "kind": "md raid1", "parts": parts}]},
        submit_ns=[0, 0], device=[0, 1])
    anonymize(open_trace(tmp_path / "t.parquet"), tmp_path / "a.parquet", key=KEY, region_bytes=region_bytes)
    metadata = open_trace(tmp_path / "a.parquet").metadata
    volume, = metadata["volumes"]
    first, second = volume["parts"]
    assert (volume["name"], first["name"], metadata["storage_layer"]) == ("device1", "device0", "both")
    assert second["name"] not in ("device0", "device1") and first["offset_bytes"] == offset_bytes
    with pytest.raises(TraceError, match="each I/O twice"):
        _ = blkreel.open(tmp_path / "a.parquet").metrics


def test_the_history_of_a_slice_names_nothing(named, tmp_path):
    slice_trace(open_trace(named), tmp_path / "part.parquet", Selection(processes=("Walter-Secretname",)))
    assert b"Walter-Secretname" in (tmp_path / "part.parquet").read_bytes()
    anonymize(open_trace(tmp_path / "part.parquet"), tmp_path / "t.parquet", key=KEY)
    after = everything_in(tmp_path / "t.parquet")
    assert not [name for name in PLANTED if name.encode() in after]


def test_what_stays(named, tmp_path):
    anonymize(open_trace(named), tmp_path / "t.parquet", key=KEY)
    before, after = columns_of(named), assert_valid(tmp_path / "t.parquet")
    for column in set(before) - {"inode", "cgroup"}:
        assert (after[column] == before[column]).all(), column
    for column in ("inode", "cgroup"):
        pairs = set(zip(before[column].tolist(), after[column].tolist(), strict=True))
        assert len(pairs) == len(set(before[column].tolist())) == len(set(after[column].tolist())), column
    metadata = open_trace(tmp_path / "t.parquet").metadata
    assert metadata["devices"][0]["size_bytes"] == 1 << 36 and metadata["kernel"] == "6.1"
    names = {thread["comm"] for thread in metadata["threads"].values()}
    assert any(name.startswith("kworker/") for name in names), "by which a dependent replay recognizes kernel threads"
    assert len(names) == len({thread["comm"] for thread in open_trace(named).metadata["threads"].values()})
    assert metadata["history"][-1]["command"] == "anonymize" and metadata["import_warnings"]


def test_names_have_one_hash_per_key(named, tmp_path):
    texts = []
    for number, key in enumerate((KEY, KEY, KEY[::-1])):
        anonymize(open_trace(named), tmp_path / f"{number}.parquet", key=key)
        texts.append(json.dumps(open_trace(tmp_path / f"{number}.parquet").metadata["threads"]))
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("region_bytes", [1 << 20, 1 << 26])
def test_permuted_regions_keep_each_io_and_each_overlap(tmp_path, region_bytes):
    anonymize(open_trace(COMPILE), tmp_path / "t.parquet", key=KEY, region_bytes=region_bytes)
    before, after = columns_of(COMPILE), assert_valid(tmp_path / "t.parquet")  # inside the device
    assert (before["length_bytes"] == after["length_bytes"]).all()
    assert (before["offset_bytes"] != after["offset_bytes"]).any()
    assert ((before["offset_bytes"] - after["offset_bytes"]) % 4096 == 0).all()

    def blocks(rows):
        first, last = rows["offset_bytes"] // 512, (rows["offset_bytes"] + rows["length_bytes"]) // 512
        moving = rows["op"] != 2
        return [np.arange(a, b) for a, b in zip(first[moving], last[moving], strict=True)]

    # Blocks are mapped one to one: the same block of the drive before is the same block afterwards.
    pairs = np.stack([np.concatenate(blocks(before)), np.concatenate(blocks(after))])
    distinct = np.unique(pairs, axis=1).shape[1]
    assert distinct == len(np.unique(pairs[0])) == len(np.unique(pairs[1]))
    flushes = before["op"] == 2  # of the whole drive
    assert flushes.any() and (after["offset_bytes"][flushes] == before["offset_bytes"][flushes]).all()


def test_a_region_as_large_as_the_drive_moves_nothing_and_says_so(tmp_path):
    result = anonymize(open_trace(COMPILE), tmp_path / "t.parquet", key=KEY, region_bytes=1 << 40)
    assert "no offset changed" in result.notes[0]


def test_regions_of_devices_of_any_size_take_little_memory(tmp_path):
    """256 PiB have 2^46 regions, which no memory holds; the last I/O reaches across 2^37 of them."""
    offset_bytes = np.array([1 << 57, (1 << 57) + 2048, 4096, 1 << 50])
    length_bytes = np.array([4096, 4096, 4096, 1 << 49])
    trace = new_trace(tmp_path / "a.parquet", drive_bytes=1 << 58, op=0, latency_ns=1, offset_bytes=offset_bytes,
                      length_bytes=length_bytes)
    anonymize(open_trace(trace), tmp_path / "t.parquet", key=KEY, region_bytes=4096)
    moved_bytes = valid_rows(tmp_path / "t.parquet")["offset_bytes"]
    assert (moved_bytes != offset_bytes).any() and moved_bytes[1] - moved_bytes[0] == 2048
    begins, ends = moved_bytes[[0, 2, 3]], (moved_bytes + length_bytes)[[1, 2, 3]]
    assert (np.sort(begins)[1:] >= np.sort(ends)[:-1]).all() and ends.max() <= 1 << 58


def test_regions_that_are_no_blocks(tmp_path):
    with pytest.raises(UsageError, match="give a multiple of 4K"):
        anonymize(open_trace(COMPILE), tmp_path / "t.parquet", key=KEY, region_bytes=1000)


def test_a_replay_gives_the_same_figures(tmp_path, blkreel):
    (tmp_path / "key").write_bytes(KEY)
    blkreel("anonymize", GAME_LOAD, "-o", "share.parquet", "--key-file", "key", cwd=tmp_path)
    figures = []
    for number, trace in enumerate((GAME_LOAD, "share.parquet")):
        blkreel("replay", trace, "--on", "nil:64GiB,read_latency=80us,read_bandwidth=2GB/s,clock=virtual", "-o",
                f"run{number}", "--pace", "dependent", cwd=tmp_path)
        rows = columns_of(tmp_path / f"run{number}")
        figures.append([rows[name].tolist() for name in ("submit_ns", "latency_ns", "offset_bytes", "source_row")])
    assert figures[0] == figures[1]


def test_a_bad_key(tmp_path, blkreel):
    (tmp_path / "key").write_bytes(b"short")
    for name in ("key", "missing"):
        result = blkreel("anonymize", COMPILE, "-o", "t.parquet", "--key-file", name, check=False,
                         cwd=tmp_path)
        assert result.returncode == 2 and "openssl rand" in result.stderr
    assert not (tmp_path / "t.parquet").exists()


def test_a_certificate_says_how_far_replays_agree(blkreel, tmp_path):
    """Of the same rows: not at all. With permuted regions the drives that model places differ; and info shows it."""
    output = tmp_path / "share.parquet"
    printed = blkreel("anonymize", "sample:app-start", "-o", output, "--certify").stdout
    certificate = open_trace(output).metadata["certificate"]
    assert set(certificate["drives"]) == set(typical_drives())
    assert (certificate["largest"], certificate["swapped"], certificate["pairs"]) == (0, 0, 36)
    text = ("replays on 9 simulated drives: load time and read latency p99 within 0 % of those of the original, "
            "order equal")
    assert text in printed
    assert text in " ".join(blkreel("info", output).stdout.split())
    part = slice_trace(open_trace(output), tmp_path / "part.parquet", Selection(to_ns=10**9)).path
    assert "certificate" not in open_trace(part).metadata  # other rows


def test_a_certificate_notices_a_trace_that_behaves_otherwise(tmp_path):
    """The beginning of a program that loads for longer."""
    original = open_trace(APP_START)
    part = slice_trace(original, tmp_path / "part.parquet", Selection(to_ns=10**8)).path
    certificate = certify(original, open_trace(part), progress)
    assert certificate["drives"]["optane"]["load_time"] < -0.1
    assert certificate["largest"] >= max(abs(drive["load_time"]) for drive in certificate["drives"].values())


def test_a_trace_of_several_drives_is_not_certified(blkreel, tmp_path):
    merged = tmp_path / "merged.parquet"
    blkreel("merge", "sample:app-start", "sample:update-verify", "-o", merged)
    result = blkreel("anonymize", merged, "-o", tmp_path / "share.parquet", "--certify", code=2)
    assert "needs a trace of one drive" in result.stderr and "blkreel slice" in result.stderr
    assert not (tmp_path / "share.parquet").exists()
