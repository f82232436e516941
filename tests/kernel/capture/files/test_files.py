"""Whose data it was: file, path and the thread that wrote it, held against what was done."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS

pytestmark = pytest.mark.kernel

MIB = 1 << 20


@pytest.fixture
def drive(loop_drive):
    return loop_drive(128 << 20)


@pytest.fixture
def directory(drive, tmp_path, program):
    """A file system on the drive, with a file of 8 MiB that is in no cache."""
    # Nothing is left for the kernel to write by itself.
    subprocess.run([program("mkfs.ext4", "e2fsprogs"), "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0",
                    drive], check=True)
    directory = tmp_path / "files"
    directory.mkdir()
    subprocess.run(["mount", drive, directory], check=True)
    try:
        (directory / "deep" / "er").mkdir(parents=True)
        with open(directory / "there", "wb") as file:
            file.write(os.urandom(8 * MIB))
            file.flush()
            os.fsync(file.fileno())
            # While a mount namespace that began meanwhile, as one of another test, has the file system, too, unmounting
            # it here leaves what the kernel has of it in memory.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        subprocess.run(["umount", directory], check=True)
        subprocess.run(["mount", drive, directory], check=True)
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", directory], check=False)


def captured(blkreel, drive, trace, script, *options):
    blkreel("capture", drive, "--files", *options, "-o", trace, "--", "sh", "-c", script)
    found = open_trace(trace)
    paths = {entry["inode"]: Path(entry["path"]) for entry in found.metadata.get("files", [])}
    rows = found.table().to_pandas()
    rows["path"] = rows.inode.map(paths)
    rows["comm"] = rows.tid.map({int(tid): entry["comm"] for tid, entry in found.metadata["threads"].items()})
    return rows


KINDS = pytest.mark.parametrize("kind", ["tp_btf", "raw_tp"])
READERS = {
    "buffered": "dd if=there of=/dev/null bs=64k count=16 status=none",
    "direct": "dd if=there of=/dev/null bs=64k count=16 iflag=direct status=none",
    "mapped": "python3 -c \"import mmap; f = open('there', 'rb'); mmap.mmap(f.fileno(), 1 << 20, prot=1)[::4096]\"",
}


@pytest.mark.parametrize(("reader", "kind"), [*((reader, "tp_btf") for reader in READERS), ("mapped", "raw_tp")])
def test_what_was_read(blkreel, drive, directory, tmp_path, reader, kind):
    rows = captured(blkreel, drive, tmp_path / "t.parquet", f"cd {directory}; {READERS[reader]}", "--programs", kind)
    reads = rows[(rows.op == OPS["read"]) & (rows.path == directory / "there")]
    assert set(reads.inode) == {(directory / "there").stat().st_ino}
    assert reads.length_bytes.sum() >= MIB  # and what read-ahead brought along
    assert not (reads["flags"] & FLAGS["deferred"]).any()
    # The rest are the file system's own structures: of no file, and said to be.
    rest = rows[(rows.op == OPS["read"]) & (rows.path != directory / "there")]
    assert not (rest.inode > 0).any()


def long_paths(directory):
    """Files with names of 1 to 255 bytes, 1 to 60 names deep, and with names of nearly 2^n bytes in all."""
    shapes = [[length] for length in range(1, 256)]
    shapes += [[1 + depth * 7 % 31] * depth for depth in range(1, 61)]
    for total in (1 << power for power in range(4, 12)):
        for names_bytes in range(total - 3, total + 4):  # with a zero behind each name
            whole = max(1, names_bytes // 101)
            shapes.append([100] * (whole - 1) + [names_bytes - whole * 101 + 100])
    shapes += [[200, 255, 255, 200], [255, 255, 255, 3], [255] * 5, [1, 255, 255, 255, 255]]
    for number, lengths in enumerate(shapes):
        names = [(f"{number:x}{chr(97 + place % 26) * length}")[:length] for place, length in enumerate(lengths)]
        if len(names[0]) < 3:
            names[0] = f"{number:03}" if len(names) > 1 else "~" * lengths[0]
        path = directory.joinpath(*names)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(4096))
        yield path, names


def test_paths_of_any_length_and_depth(blkreel, drive, directory, tmp_path):
    """Whole, or cut at their begin and marked."""
    files = dict(long_paths(directory))
    subprocess.run(["sync", "--file-system", directory], check=True)
    (tmp_path / "list").write_text("\n".join(map(str, files)))
    script = (f"import os, mmap; page = mmap.mmap(-1, 4096)\nfor path in open('{tmp_path}/list'):\n"
              "    os.preadv(os.open(path[:-1] if path.endswith('\\n') else path, os.O_DIRECT), [page], 0)")
    (tmp_path / "read.py").write_text(script)
    blkreel("capture", drive, "--files", "-o", tmp_path / "t.parquet", "--", sys.executable, tmp_path / "read.py")
    paths = {entry["inode"]: entry["path"] for entry in open_trace(tmp_path / "t.parquet").metadata["files"]}
    cut = 0
    for path, names in files.items():
        whole, captured = str(path), paths[path.stat().st_ino]
        if sum(len(name) + 1 for name in names) <= 1024 and len(names) <= 24:
            assert captured == whole
        elif captured != whole:
            cut += 1
            assert captured.startswith("…/") and whole.endswith(captured[1:]), captured
            assert len(captured) > 1000 or captured.count("/") == 24
    assert cut >= 8


def places_of_files(directory, shift_bytes=0):
    """[(first byte on the drive, end, name)] of the extents of its files. shift_bytes: where its volume begins."""
    text = subprocess.run(["filefrag", "-v", "-b1", *filter(Path.is_file, directory.iterdir())], check=True,
                          capture_output=True, text=True).stdout
    places = []
    for of_file in text.split("File size of ")[1:]:
        name = Path(of_file.partition(" is ")[0]).name
        for first, length in re.findall(r"^ *\d+: +\d+\.\. +\d+: +(\d+)\.\. +\d+: +(\d+):", of_file, re.MULTILINE):
            places.append((int(first) + shift_bytes, int(first) + shift_bytes + int(length), name))
    return places


def assert_files_agree(rows, places):
    """The file of each row, and whether it has several, held against the places of the files on the drive.

    Returns how many rows have several.
    """
    several = 0
    for row in rows.itertuples():
        end = row.offset_bytes + row.length_bytes
        parts = {name: min(end, after) - max(row.offset_bytes, first) for first, after, name in places
                 if first < end and row.offset_bytes < after}
        # What is of no file is the file system's own.
        files = [*parts] if sum(parts.values()) == row.length_bytes else [*parts, None]
        assert (row.file if row.inode > 0 else None) in files, (row.offset_bytes, row.length_bytes, row.file, files)
        assert (row.flags & FLAGS["several_files"] != 0) == (len(files) > 1), files
        several += len(files) > 1
    return several


@KINDS
def test_requests_with_data_of_several_files_are_marked(blkreel, drive, directory, program, tmp_path, kind):
    """Held against the places of the files on the drive."""
    program("filefrag", "e2fsprogs")
    script = (f"cd {directory}; for i in $(seq 120); do head -c $((i % 7 * 3000 + 4000)) /dev/urandom > small$i; done; "
              "dd if=/dev/zero of=large bs=1M count=4 status=none; sync --file-system .")
    rows = captured(blkreel, drive, tmp_path / "t.parquet", script, "--programs", kind)
    # By inode: where other work drops the kernel's names before the data is written, the trace has no path.
    rows["file"] = rows.inode.map({path.stat().st_ino: path.name for path in directory.iterdir()})
    has_path = rows.path.notna()
    assert (rows.path[has_path].map(lambda path: path.name) == rows.file[has_path]).all()
    assert assert_files_agree(rows[rows.op == OPS["write"]], places_of_files(directory)) > 0


def test_a_file_system_that_is_mounted_elsewhere_meanwhile(blkreel, drive, directory, tmp_path):
    (directory / "second").write_bytes(os.urandom(MIB))
    subprocess.run(["umount", directory], check=True)
    subprocess.run(["mount", drive, directory], check=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    read = "dd of=/dev/null bs=64k iflag=direct status=none if="
    try:
        rows = captured(blkreel, drive, tmp_path / "t.parquet",
                        f"{read}{directory}/there; sleep 1; umount {directory}; mount {drive} {elsewhere}; "
                        f"{read}{elsewhere}/second")
        assert {directory / "there", elsewhere / "second"} <= set(rows.path)
    finally:
        subprocess.run(["umount", elsewhere], check=False)
        subprocess.run(["mount", drive, directory], check=False)


def test_a_file_of_a_mount_namespace_that_blkreel_does_not_see(blkreel, drive, directory, program, tmp_path):
    """Its path begins at the root of its file system, and must not look like a path of this one."""
    subprocess.run(["umount", directory], check=True)
    inner = f"mount {drive} {directory}; dd if={directory}/there of=/dev/null bs=64k iflag=direct status=none"
    try:
        blkreel("capture", drive, "--files", "-o", tmp_path / "t.parquet", "--",
                program("unshare", "util-linux"), "--mount", "sh", "-c", inner)
    finally:
        subprocess.run(["mount", drive, directory], check=True)
    paths = [entry["path"] for entry in open_trace(tmp_path / "t.parquet").metadata["files"]]
    assert paths == ["(other namespace) /there"]


def test_a_directory_of_a_file_system_that_is_mounted_alone(blkreel, drive, directory, tmp_path):
    """As the subvolumes of btrfs are, and the volumes of a container."""
    (directory / "deep/er/inner").write_bytes(os.urandom(MIB))
    subprocess.run(["sync", "--file-system", directory], check=True)
    alone = tmp_path / "alone"
    alone.mkdir()
    subprocess.run(["mount", "--bind", directory / "deep", alone], check=True)
    subprocess.run(["umount", directory], check=True)
    read = "dd of=/dev/null bs=64k iflag=direct status=none if="
    try:
        rows = captured(blkreel, drive, tmp_path / "t.parquet", f"{read}{alone}/er/inner")
    finally:
        subprocess.run(["umount", alone], check=True)
        subprocess.run(["mount", drive, directory], check=True)
    assert alone / "er/inner" in set(rows.path)


@KINDS
def test_writeback_is_of_who_wrote(blkreel, drive, directory, tmp_path, kind):
    """The writer has long ended when a kernel thread writes its data out."""
    before = int(Path("/proc/sys/vm/dirty_writeback_centisecs").read_text())
    # Until it is written out: the sectors written by the drive, in the kernel's count.
    script = (f"written() {{ set -- $(cat /sys/block/{Path(drive).name}/stat); echo $7; }}; before=$(written); "
              f"cd {directory}; dd if=/dev/zero of=deep/er/new bs=1M count=3 status=none; "
              "cd /proc/sys/vm; echo 1 > dirty_expire_centisecs; echo 10 > dirty_writeback_centisecs; "
              f"until [ $(written) -ge $((before + {3 * MIB // 512})) ]; do sleep 0.1; done")
    expire = Path("/proc/sys/vm/dirty_expire_centisecs").read_text()
    try:
        rows = captured(blkreel, drive, tmp_path / "t.parquet", script, "--programs", kind)
    finally:
        Path("/proc/sys/vm/dirty_expire_centisecs").write_text(expire)
        Path("/proc/sys/vm/dirty_writeback_centisecs").write_text(str(before))
    written = rows[(rows.op == OPS["write"]) & (rows.path == directory / "deep/er/new")]
    assert written.length_bytes.sum() == 3 * MIB
    assert set(written.comm) == {"dd"}
    assert (written["flags"] & FLAGS["deferred"] != 0).all()


def test_a_direct_write_is_nobody_elses(blkreel, drive, directory, tmp_path):
    rows = captured(blkreel, drive, tmp_path / "t.parquet",
                    f"dd if=/dev/zero of='{directory}/name with ü' bs=1M count=2 oflag=direct status=none")
    written = rows[rows.path == directory / "name with ü"]
    assert written.length_bytes.sum() == 2 * MIB and set(written.comm) == {"dd"}
    assert not (written["flags"] & FLAGS["deferred"]).any()


def test_files_of_other_drives_are_not_told(blkreel, drive, directory, tmp_path):
    """Names may be private: only those of the captured drive's own I/O are kept."""
    rows = captured(blkreel, drive, tmp_path / "t.parquet",
                    f"dd if=/dev/zero of={tmp_path}/secret bs=1M count=2 status=none; cat {directory}/there >/dev/null")
    files = open_trace(tmp_path / "t.parquet").metadata["files"]
    assert {entry["path"] for entry in files} == {str(directory / "there")}
    device = directory.stat().st_dev
    assert {entry["filesystem"] for entry in files} == {f"{os.major(device)}:{os.minor(device)}"}
    assert "dd" not in set(rows.comm)


def test_only_files_of_the_workload_are_named(blkreel, drive, directory, tmp_path):
    read, wait = "dd of=/dev/null bs=64k count=1 iflag=direct status=none if=", "until [ -e {} ]; do sleep 0.05; done"
    (directory / "secret").write_bytes(os.urandom(MIB))
    subprocess.run(["sync", "--file-system", directory], check=True)
    script = f"{wait.format(tmp_path / 'go')}; {read}{directory}/secret; touch {tmp_path}/over"
    with subprocess.Popen(["sh", "-ec", script]):
        captured(blkreel, drive, tmp_path / "t.parquet",
                 f"{read}{directory}/there; touch {tmp_path}/go; {wait.format(tmp_path / 'over')}", "--workload-only")
    metadata = open_trace(tmp_path / "t.parquet").metadata
    assert metadata["ledger"]["not_own"] > 0
    assert [entry["path"] for entry in metadata["files"]] == [str(directory / "there")]


def test_without_the_option_no_names(blkreel, drive, directory, tmp_path):
    blkreel("capture", drive, "-o", tmp_path / "t.parquet", "--",
            "dd", f"if={directory}/there", "of=/dev/null", "bs=64k", "count=4", "status=none")
    found = open_trace(tmp_path / "t.parquet")
    assert "files" not in found.metadata and "inode" not in found.table().column_names
