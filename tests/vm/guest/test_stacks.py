"""Volumes and drives below them: whose I/O it is where a kernel thread of the volume submits it, and each layer."""

import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from waiting import wait_until

from blkreel.common.device import drive_of
from blkreel.traces.format.schema import FLAGS, OPS
from tests.kernel.capture.files.test_files import assert_files_agree, places_of_files
from tests.kernel.capture.threads.test_own import limited_group  # noqa: F401
from tests.vm.guest.drives import counters

MIB = 1 << 20
KEY = "1" * 64


def threads_of(rows):
    """The comm of each row's thread, "" where it is unknown."""
    threads = rows.attrs["metadata"]["threads"]
    return rows.tid.map(lambda tid: threads.get(str(tid), {"comm": ""})["comm"])


def is_own(rows):
    return rows["flags"] & FLAGS["own"] != 0


@pytest.fixture
def encrypted(dm, nvme):
    """dm-crypt on two segments of a drive, of which the second begins at 1 MiB."""
    return dm("blkreel-crypt", f"0 2048 crypt aes-cbc-plain64 {KEY} 0 {nvme} 0\n"
                               f"2048 63488 crypt aes-cbc-plain64 {KEY} 0 {nvme} 4096\n")


def test_a_write_through_dm_crypt_is_of_its_issuer(rows_of, encrypted):
    """Its own thread submits it, encrypted, and of one write the volume makes one for each segment. The other tests of
    dm-crypt have the programs that most kernels take."""
    rows = rows_of(encrypted, f"dd if={encrypted} of=/dev/null bs=16k count=20 iflag=direct status=none;"
                              f"dd if=/dev/zero of={encrypted} bs=768k count=3 oflag=direct status=none", "--programs",
                   "raw_tp", "--workload-only")
    writes = rows[rows.op == OPS["write"]]
    assert writes.length_bytes.sum() == 3 * 768 * 1024 and (writes.offset_bytes >= 2 * MIB).sum() > 0
    assert rows[rows.op == OPS["read"]].length_bytes.sum() == 20 * 16384
    assert set(threads_of(rows)) == {"dd"} and is_own(rows).all()
    # Between the completion on the drive and the wake-up the volume decrypts.
    assert (rows.groupby("tid").slept_ns.max() > 0).all() and (rows.runnable_ns >= 0).all()
    assert rows.attrs["summary"]["ledger"]["not_own"] == 0
    assert rows.attrs["summary"]["diskstats"]["difference"] == 0


@pytest.mark.parametrize("option", ["", " 1 no_write_workqueue"])
def test_files_below_dm_crypt(rows_of, dm, nvme, tmp_path, option):
    """And those who wrote the data, long before a kernel thread writes it back, and where no other one encrypts it."""
    encrypted = dm("blkreel-files", f"0 65536 crypt aes-cbc-plain64 {KEY} 0 {nvme} 2048{option}\n")
    subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", encrypted], check=True)
    directory = tmp_path / "files"
    directory.mkdir()
    subprocess.run(["mount", encrypted, directory], check=True)
    try:
        # Data and the journal's blocks in turn: their bios have the same addresses.
        rows = rows_of([], f"cd {directory}; dd if=/dev/zero of=buffered bs=64k count=16 status=none;"
                           "for at in 1 2 3 4; do printf %07000d 0 >small$at; sync --file-system .; done;"
                           "dd if=/dev/zero of=direct bs=64k count=16 oflag=direct status=none", "--files", "--path",
                       directory)
        places = places_of_files(directory, MIB)
    finally:
        subprocess.run(["umount", directory], check=True)
    names = {entry["inode"]: Path(entry["path"]).name for entry in rows.attrs["metadata"]["files"]}
    rows["file"], rows["comm"] = rows.inode.map(names), threads_of(rows)
    writes = rows[rows.op == OPS["write"]]
    assert_files_agree(writes, places)
    data = writes[writes.inode > 0]
    assert set(data.file) == {name for _, _, name in places}
    assert set(data.comm) == {"dd", "sh"} and is_own(data).all()
    assert data[data.file == "direct"].length_bytes.sum() == MIB


def test_a_volume_on_a_volume(rows_of, dm, nvme):
    """As of a system that is installed encrypted on LVM. The writes of others stay theirs."""
    lower = dm("blkreel-lower", f"0 65536 linear {nvme} 8192\n")
    upper = dm("blkreel-upper", f"0 65536 crypt aes-cbc-plain64 {KEY} 0 {lower} 0\n")
    other = subprocess.Popen(["sh", "-c", f"read line; exec dd if=/dev/zero of={upper} bs=4k count=50 seek=1000 "
                              "oflag=direct status=none"], stdin=subprocess.PIPE)
    rows = rows_of(upper, f"dd if=/dev/zero of={upper} bs=4k count=50 oflag=direct status=none;"
                          f"echo go >/proc/{other.pid}/fd/0; while kill -0 {other.pid} 2>/dev/null &&"
                          f" ! grep -q zombie /proc/{other.pid}/status; do sleep 0.1; done")
    other.communicate()
    writes = rows[rows.op == OPS["write"]]
    assert sorted(writes.offset_bytes) == [8192 * 512 + 4096 * at for at in (*range(50), *range(1000, 1050))]
    assert sorted(writes[is_own(writes)].offset_bytes) == [8192 * 512 + 4096 * at for at in range(50)]
    assert set(threads_of(writes)) == {"dd"} and writes.tid.nunique() == 2


@pytest.mark.parametrize("level", [0, 10])
def test_an_encrypted_volume_on_an_array(rows_of, md, dm, level):
    """The array cuts a write at the end of a chunk, and its second part was of the thread of the encryption."""
    array, members = md(level)
    encrypted = dm("blkreel-crypt", f"0 65536 crypt aes-cbc-plain64 {KEY} 0 {array} 0\n")
    rows = rows_of(encrypted, f"dd if=/dev/zero of={encrypted} bs=96k count=20 oflag=direct status=none")
    writes = rows[(rows.op == OPS["write"]) & (rows.length_bytes > 512)]
    assert writes.length_bytes.sum() == 20 * 96 * 1024 * (2 if level else 1) and len(set(writes.device)) == len(members)
    assert set(threads_of(writes)) == {"dd"} and is_own(writes).all()


def test_multipath_of_dm(rows_of, dm, nvme_drives):
    """It has requests, whose copies a kernel thread issues to the drives, and which the kernel completes twice."""
    paths = " ".join(f"{drive} 1" for drive in nvme_drives[:2])
    volume = dm("blkreel-paths", f"0 65536 multipath 2 queue_mode mq 0 1 1 round-robin 0 2 1 {paths}\n")
    work = (f"dd if=/dev/zero of={volume} bs=4k count=30 oflag=direct status=none;"
            f"dd if={volume} of=/dev/null bs=4k count=30 iflag=direct status=none")
    for options in ((), ("--layer", "volume")):
        rows = rows_of(volume, work, *options)
        assert rows.op.value_counts().to_dict() == {OPS["read"]: 30, OPS["write"]: 30}
        assert set(threads_of(rows)) == {"dd"} and is_own(rows).all()
        assert rows.attrs["summary"]["missing"] == [] and rows.attrs["summary"]["diskstats"]["difference"] == 0


def test_a_limit_on_a_volume(rows_of, encrypted, limited_group):  # noqa: F811
    group = limited_group(encrypted, 200)
    rows = rows_of(encrypted, f"echo $$ >{group}/cgroup.procs;"
                              f"dd if=/dev/zero of={encrypted} bs=4k count=60 oflag=direct status=none")
    writes = rows[rows.op == OPS["write"]]
    assert len(writes) == 60 and set(threads_of(writes)) == {"dd"} and is_own(writes).all()


@pytest.fixture
def bcache(nvme_drives, program):
    """(volume, backing drive, cache): a cache that is written through."""
    backing, cache = nvme_drives[1:]
    for drive in (backing, cache):
        subprocess.run(["blkdiscard", "-f", drive], check=True)
    register = Path("/sys/fs/bcache/register")
    if not register.exists():
        pytest.skip("needs bcache: modprobe bcache")
    subprocess.run([program("make-bcache", "bcache-tools"), "--bucket", "128k", "-B", backing, "-C", cache], check=True,
                   capture_output=True)
    for drive in (cache, backing):
        register.write_text(drive)
    holders = Path("/sys/block", Path(backing).name, "holders")
    wait_until(lambda: list(holders.iterdir()))
    volume, = holders.iterdir()
    state = Path("/sys/block", volume.name, "bcache")
    wait_until(lambda: (state / "state").read_text().strip() == "clean")
    # A cache that is slow for a moment would be bypassed.
    (state / "sequential_cutoff").write_text("0")
    for threshold in ("congested_read_threshold_us", "congested_write_threshold_us"):
        (state / "cache" / threshold).write_text("0")
    yield f"/dev/{volume.name}", backing, cache
    (state / "stop").write_text("1")
    for group in Path("/sys/fs/bcache").glob("*-*"):
        (group / "stop").write_text("1")
    wait_until(lambda: not any(list(Path("/sys/block", Path(drive).name, "holders").iterdir())
                               for drive in (backing, cache)))


def test_bcache(rows_of, bcache):
    """Reads and writes of the workload are its own on both drives; what the cache does for itself is not."""
    volume, backing, cache = bcache
    rows = rows_of(volume, f"dd if=/dev/zero of={volume} bs=16k count=20 oflag=direct status=none;"
                           f"dd if={volume} of=/dev/null bs=16k count=20 iflag=direct status=none;"
                           f"dd if={volume} of=/dev/null bs=16k count=20 skip=100 iflag=direct status=none")
    assert set(rows.attrs["summary"]["devices"]) == {backing, cache}
    drive = rows.device.map([entry["path"] for entry in rows.attrs["metadata"]["devices"]].__getitem__)
    data = rows[(rows.length_bytes == 16384) & is_own(rows)]
    kinds = data.groupby([drive, "op"]).size().to_dict()
    assert kinds[backing, OPS["write"]] == kinds[cache, OPS["write"]] == kinds[cache, OPS["read"]] == 20
    assert kinds[backing, OPS["read"]] == 20, "not in the cache"
    assert set(threads_of(data)) == {"dd"}
    assert not is_own(rows[threads_of(rows).str.startswith(("kworker", "bcache"))]).any()
    assert rows.attrs["summary"]["diskstats"]["difference"] == 0


def test_the_layer_of_a_bcache(rows_of, bcache):
    volume, *drives = bcache
    ios, script = write_and_read(volume)
    before = counters(volume)
    rows = rows_of(volume, script, "--layer", "volume")
    after = counters(volume)
    data = rows[rows.op != OPS["flush"]]
    assert data.offset_bytes.tolist() == [offset for _, offset, _ in ios]
    assert data.length_bytes.tolist() == [length for *_, length in ios]
    assert after["reads"] - before["reads"] == (data.op == OPS["read"]).sum() == 30
    assert 23 <= after["writes"] - before["writes"] <= 24, "the counters may have the fsync"
    assert is_own(rows).all() and set(threads_of(rows)) == {"dd"} and (rows.latency_ns > 0).all()
    mapping, = rows.attrs["metadata"]["volumes"]
    assert mapping["kind"] == "bcache" and {part["name"] for part in mapping["parts"]} == {
        Path(drive).name for drive in drives}
    assert rows.attrs["summary"]["missing"] == [] and rows.attrs["summary"]["diskstats"]["difference"] == 0


@pytest.fixture
def md(nvme_drives, program):
    """A factory: md(level) is an array of the last two drives, of level 10 of all three, whose data begins behind its
    superblocks."""
    with ExitStack() as stack:
        def make(level):
            mdadm, environment = program("mdadm"), {**os.environ, "MDADM_NO_UDEV": "1"}
            members = nvme_drives if level == 10 else nvme_drives[1:]
            for drive in members:
                subprocess.run(["blkdiscard", "-f", drive], check=True)
            options = [] if level == 0 else ["--bitmap=none", "--assume-clean"]
            options += ["--chunk=64"] if level in (0, 10) else []
            subprocess.run([mdadm, "--create", "/dev/md9", "--run", f"--level={level}",
                            f"--raid-devices={len(members)}", "--metadata=1.2", *options, *members], check=True,
                           capture_output=True, env=environment)
            stack.callback(subprocess.run, [mdadm, "--stop", "/dev/md9"], check=True, capture_output=True,
                           env=environment)
            with Path("/dev/md9").open("rb"):
                pass  # the kernel reads the table of partitions when it is opened first
            if level:  # else it writes to its superblocks when there were no writes for a moment
                Path("/sys/block/md9/md/safe_mode_delay").write_text("0")
            return "/dev/md9", members

        yield make


def test_a_rebuild_onto_a_drive_that_is_not_recorded_is_reported(rows_of, md, blkreel, nvme_drives, tmp_path):
    array, members = md(1)
    spare = nvme_drives[0]
    subprocess.run(["blkdiscard", "-f", spare], check=True)
    for change in ("--fail", "--remove"):
        subprocess.run(["mdadm", array, change, members[1]], check=True, capture_output=True)
    before = counters(spare)["writes"]
    rebuild = f"mdadm {array} --add {spare}; mdadm --wait {array}; sync"
    result = blkreel("capture", array, "-o", tmp_path / "rebuilt.parquet", "--", "sh", "-c", rebuild, check=False)
    assert counters(spare)["writes"] > before + 100
    assert result.returncode == 3 and f"{Path(spare).name} was added to a volume" in result.stderr


def test_parity_is_not_of_the_thread_at_the_start_of_the_array(rows_of, md):
    """md names sector 0 of the array for it, so that it was of the thread whose I/O was last there."""
    array, _ = md(5)
    rows = rows_of(array, f"head -c 4096 {array} >/dev/null;"
                          f"dd if=/dev/zero of={array} bs=64k count=20 seek=1 oflag=direct status=none")
    writes = rows[rows.op == OPS["write"]]
    assert "dd" in set(threads_of(writes)) and "head" in set(threads_of(rows)) - set(threads_of(writes))
    parity = writes[~is_own(writes)]
    assert parity.length_bytes.sum() >= 20 * 65536 >= writes[is_own(writes)].length_bytes.sum()
    assert rows.attrs["summary"]["diskstats"]["difference"] == 0


@pytest.fixture
def volume(request, dm, md, nvme_drives):
    """(volume, drives below it, kind, offset on the drive of each offset on the volume; None where it is striped)."""
    first, second = nvme_drives[:2]
    match request.param:
        case "crypt":
            return (request.getfixturevalue("encrypted"), [first], "dm-crypt",
                    lambda at: at if at < MIB else at + MIB)
        case "linear":
            table = f"0 2048 linear {first} 2048\n2048 63488 linear {second} 0"
            return dm("blkreel-v", table), [first, second], "dm-linear", lambda at: at + MIB if at < MIB else at - MIB
        case "striped":
            return (dm("blkreel-v", f"0 65536 striped 2 128 {first} 0 {second} 0"), [first, second], "dm-striped", None)
        case "raid1":
            array, members = md(1)
            offset = 512 * int(Path(f"/sys/block/md9/md/dev-{Path(members[0]).name}/offset").read_text())
            return array, members, "md raid1", lambda at: at + offset
        case "raid0":
            return *md(0), "md raid0", None


def write_and_read(device):
    """The I/Os of a script, which are larger than a chunk or across a segment in part, and the script."""
    ios = [("write", at * 16384, 16384) for at in range(20)]
    ios += [("write", at * 786432, 786432) for at in range(3)]
    ios += [("read", at * 4096, 4096) for at in range(100, 130)]
    return ios, (f"dd if=/dev/zero of={device} bs=16k count=20 oflag=direct status=none;"
                 f"dd if=/dev/zero of={device} bs=768k count=3 oflag=direct conv=fsync status=none;"
                 f"dd if={device} of=/dev/null bs=4k count=30 skip=100 iflag=direct status=none")


@pytest.mark.parametrize("volume", ["crypt", "linear", "striped", "raid0", "raid1"], indirect=True)
def test_each_layer_has_each_io_once(blkreel, rows_of, volume, tmp_path):
    """The volume's as they were issued; the drives' as many as each drive counts; and no sum of both."""
    device, drives, kind, place = volume
    ios, script = write_and_read(device)
    name = drive_of(device).name

    def captured(*devices, layer):
        before = [counters(disk) for disk in (f"/dev/{name}", *drives)]
        rows = rows_of(list(devices), script, "--layer", layer)
        after = [counters(disk) for disk in (f"/dev/{name}", *drives)]
        summary = rows.attrs["summary"]
        assert summary["missing"] == [] and summary["diskstats"]["difference"] == 0, summary
        paths = [Path(entry["path"]).name for entry in rows.attrs["metadata"]["devices"]]
        counts = {Path(disk).name: sum(now[key] - then[key] for key in ("reads", "writes", "discards"))
                  for disk, then, now in zip((name, *drives), before, after, strict=True)}
        return rows, {path: rows[(rows.device == number) & (rows.op != OPS["flush"])]
                      for number, path in enumerate(paths)}, counts

    def as_issued(rows):
        names = {code: op for op, code in OPS.items()}
        return [(names[op], *rest) for op, *rest in rows[["op", "offset_bytes", "length_bytes"]].to_numpy().tolist()]

    rows, of, counts = captured(device, layer="volume")
    assert set(of) == {name} and as_issued(of[name]) == ios
    assert (rows.latency_ns > 0).all() and is_own(rows).all() and set(threads_of(rows)) == {"dd"}
    ledger = rows.attrs["summary"]["ledger"]
    assert ledger["in_flight_at_start"] == 0
    assert ledger["parts"] == counts[name] - len(ios) - (0 if kind.startswith("md") else 1), "of dm with the fsync"
    metadata = rows.attrs["metadata"]
    assert (metadata["storage_layer"], metadata["capture_layer"]) == ("volume", "bio")
    mapping, = metadata["volumes"]
    assert mapping["kind"] == kind and mapping["name"] == name
    assert {part["name"] for part in mapping["parts"]} == {Path(drive).name for drive in drives}

    rows, of, counts = captured(device, *drives, layer="volume")
    assert rows.attrs["metadata"]["storage_layer"] == "both" and as_issued(of[name]) == ios
    for drive in drives:  # whose counters have an fsync as a write of no bytes
        below = of[Path(drive).name]
        assert 0 <= counts[Path(drive).name] - len(below) <= rows.attrs["summary"]["ledger"]["empty_flushes"]
    if place:
        # The mapping of the metadata leads from each small I/O of the volume to the I/O of a drive.
        for at in (at for op, at, length in ios if op == "read"):
            part = next(part for part in mapping["parts"]
                        if 0 <= at - part["volume_offset_bytes"] < part["length_bytes"])
            offset = at - part["volume_offset_bytes"] + part["offset_bytes"]
            assert offset == place(at)
            assert any((below.offset_bytes == offset).any() for below in of.values())
    else:
        assert {part["offset_bytes"] for part in mapping["parts"]} == {None}
    assert set(threads_of(of[name])) == {"dd"}
    if kind != "dm-linear":  # what reads a trace needs no kind of volume
        return
    document = json.loads(blkreel("info", tmp_path / "t.parquet", "--json").stdout)
    ops = [{op: total["ios"] for op, total in layer["ops"].items() if op != "flush"} for layer in document["layers"]]
    assert ops[1] == {"write": 23, "read": 30}
    assert sum(ops[0].values()) == sum(len(of[Path(drive).name]) for drive in drives)
    assert [set(layer["devices"]) for layer in document["layers"]] == [set(drives), {f"/dev/{name}"}]
    shown = blkreel("info", tmp_path / "t.parquet").stdout
    assert f"/dev/{name}" in shown and f", {kind} on " in shown and f"layer of /dev/{name}" in shown
    assert "each I/O twice" in blkreel("report", tmp_path / "t.parquet", code=1).stderr
    blkreel("slice", tmp_path / "t.parquet", "-o", tmp_path / "v.parquet", "--device", "0")
    assert "layers" not in json.loads(blkreel("info", tmp_path / "v.parquet", "--json").stdout)


@pytest.mark.parametrize("volume", ["linear", "raid0", "raid1"], indirect=True)
def test_the_counters_of_a_volume_below_a_file_system(rows_of, volume, tmp_path):
    """Flushes with and without data, and discards, which each kind of volume counts in its own way."""
    device, _, kind, _ = volume
    subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", device],
                   check=True)
    directory = tmp_path / "files"
    directory.mkdir()
    subprocess.run(["mount", device, directory], check=True)
    try:
        rows = rows_of(device, f"for at in 1 2 3; do printf %07000d 0 >{directory}/$at; sync {directory}/$at; done;"
                               f"fstrim {directory}; blockdev --flushbufs {device}", "--layer", "volume")
    finally:
        subprocess.run(["umount", directory], check=True)
    writes = rows[rows.op == OPS["write"]]
    assert (writes["flags"] & FLAGS["preflush"] != 0).sum() >= 3, kind
    assert {OPS["flush"], OPS["discard"]} & set(rows.op), kind
    summary = rows.attrs["summary"]
    assert summary["missing"] == [] and summary["diskstats"]["difference"] == 0, (kind, summary)


def test_btrfs_on_two_drives(blkreel, rows_of, nvme_drives, tmp_path):
    """Its own layer has no I/O in the block layer; on its drives each I/O is once."""
    drives = nvme_drives[:2]
    subprocess.run(["mkfs.btrfs", "-q", "-f", "-d", "raid0", "-m", "raid1", *drives], check=True)
    directory = tmp_path / "files"
    directory.mkdir()
    subprocess.run(["mount", "-o", f"device={drives[0]},device={drives[1]}", drives[0], directory], check=True)
    try:
        refused = blkreel("capture", "--path", directory, "--layer", "volume", "-o", tmp_path / "v.parquet", "--",
                          "true", check=False)
        before = [counters(drive) for drive in drives]
        rows = rows_of([], f"dd if=/dev/zero of={directory}/data bs=1M count=8 conv=fsync status=none; sync", "--path",
                       directory, "--layer", "device")
        after = [counters(drive) for drive in drives]
    finally:
        subprocess.run(["umount", directory], check=True)
    assert refused.returncode == 2 and "has no I/O of its own" in refused.stderr
    assert "record the drives: --layer device" in refused.stderr
    data = rows[rows.op != OPS["flush"]]
    counted = sum(now[key] - then[key] for then, now in zip(before, after, strict=True)
                  for key in ("reads", "writes", "discards"))
    assert counted == len(data) + rows.attrs["summary"]["ledger"]["empty_flushes"]
    assert data[data.op == OPS["write"]].groupby("device").length_bytes.sum().min() >= 4 * MIB, "half of the file"
    assert rows.attrs["metadata"]["storage_layer"] == "device"
    assert rows.attrs["summary"]["diskstats"]["difference"] == 0


@pytest.mark.parametrize("kind", ["tp_btf", "raw_tp"])
def test_queries_of_a_driver_are_no_commands_of_programs(rows_of, kind):
    """virtio asks the drive for its serial each time that a program reads it, as a capture does."""
    name = next(Path("/sys/block").glob("vd*")).name
    rows = rows_of(f"/dev/{name}", f"cat /sys/block/{name}/serial >/dev/null; "
                                   f"dd if=/dev/{name} of=/dev/null bs=4k count=5 iflag=direct status=none",
                   "--programs", kind)
    ledger = rows.attrs["summary"]["ledger"]
    assert len(rows) == 5 and ledger["commands_unseen"] == 0 and ledger["other_ops"] > 0


def test_persistent_memory(rows_of):
    """It has bios only, and no counters unless asked for."""
    drive = "/dev/pmem0"
    rows = rows_of(drive, f"dd if=/dev/zero of={drive} bs=16k count=20 oflag=direct conv=fsync status=none;"
                          f"dd if={drive} of=/dev/null bs=4k count=30 iflag=direct status=none")
    assert rows[rows.op == OPS["write"]].offset_bytes.tolist() == [at * 16384 for at in range(20)]
    assert rows[rows.op == OPS["read"]].offset_bytes.tolist() == [at * 4096 for at in range(30)]
    assert (rows.latency_ns > 0).all() and is_own(rows).all() and set(threads_of(rows)) == {"dd"}
    assert rows.attrs["metadata"]["devices"][0]["layer"] == "bio"
