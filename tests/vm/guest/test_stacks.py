"""Volumes and drives below them: whose I/O it is where a kernel thread of the volume submits it."""

import subprocess
from pathlib import Path

import pytest
from waiting import wait_until

from blkreel.traces.format.schema import FLAGS, OPS
from tests.kernel.capture.test_files import assert_files_agree, places_of_files
from tests.kernel.capture.test_own import limited_group  # noqa: F401

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


@pytest.mark.parametrize("kind", ["tp_btf", "raw_tp"])
def test_a_write_through_dm_crypt_is_of_its_issuer(rows_of, encrypted, kind):
    """Its own thread submits it, encrypted, and of one write the volume makes one for each segment."""
    rows = rows_of(encrypted, f"dd if={encrypted} of=/dev/null bs=16k count=20 iflag=direct status=none;"
                              f"dd if=/dev/zero of={encrypted} bs=768k count=3 oflag=direct status=none", "--programs",
                   kind, "--workload-only")
    writes = rows[rows.op == OPS["write"]]
    assert writes.length_bytes.sum() == 3 * 768 * 1024 and (writes.offset_bytes >= 2 * MIB).sum() > 0
    assert rows[rows.op == OPS["read"]].length_bytes.sum() == 20 * 16384
    assert set(threads_of(rows)) == {"dd"} and is_own(rows).all()
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


def test_persistent_memory(rows_of):
    """It has bios only, and no counters unless asked for."""
    drive = "/dev/pmem0"
    rows = rows_of(drive, f"dd if=/dev/zero of={drive} bs=16k count=20 oflag=direct conv=fsync status=none;"
                          f"dd if={drive} of=/dev/null bs=4k count=30 iflag=direct status=none")
    assert rows[rows.op == OPS["write"]].offset_bytes.tolist() == [at * 16384 for at in range(20)]
    assert rows[rows.op == OPS["read"]].offset_bytes.tolist() == [at * 4096 for at in range(30)]
    assert (rows.latency_ns > 0).all() and is_own(rows).all() and set(threads_of(rows)) == {"dd"}
    assert rows.attrs["metadata"]["devices"][0]["layer"] == "bio"
