"""The drives of a directory on file systems that hide them: btrfs and overlayfs."""

import os
import subprocess
from pathlib import Path

import pytest
from capture_sources import assert_recorded, skip_unless_it_runs

from blkreel.common.device import drives_under
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS

pytestmark = pytest.mark.kernel

MIB = 1 << 20
# Each source gets the drives from the same search; the guest, which has no other test of it, runs blktrace.
DIRECTORY_SOURCES = pytest.mark.parametrize("source", ["bpf", "blktrace"])


@pytest.fixture
def mount(require_root, tmp_path):
    """mount(*words) mounts on a new directory of tmp_path, and returns it."""
    points = []

    def run(*words):
        point = tmp_path / f"mounted {len(points)}"
        point.mkdir()
        result = subprocess.run(["mount", *map(str, words), point], capture_output=True, text=True)
        if "unknown filesystem" in result.stderr:
            pytest.skip(result.stderr.strip())
        assert not result.returncode, result.stderr
        points.append(point)
        return point

    yield run
    for point in reversed(points):
        subprocess.run(["umount", point], check=True)


@pytest.fixture
def btrfs(loop_drive, program, mount):
    """Two drives of one file system with the subvolumes `@home` and `@home/inner`, and where it is mounted."""
    if "btrfs" not in Path("/proc/filesystems").read_text():
        pytest.skip("needs btrfs in the kernel")
    drives = [loop_drive(128 * MIB) for _ in range(2)]
    subprocess.run([program("mkfs.btrfs", "btrfs-progs"), "-q", "-d", "single", "-m", "single", *drives], check=True)
    subprocess.run([program("btrfs", "btrfs-progs"), "device", "scan", *drives], check=True, capture_output=True)
    point = mount(drives[0])
    for name in ("@home", "@home/inner"):
        subprocess.run(["btrfs", "subvolume", "create", point / name], check=True, capture_output=True)
    (point / "@home/inner/file").write_bytes(bytes(MIB))
    return drives, point


def paths(directory):
    return sorted(drive.path for drive in drives_under(directory))


def test_each_directory_of_btrfs_is_on_all_its_drives(btrfs, mount):
    drives, point = btrfs
    home = mount("-o", "subvol=@home", drives[0])
    bound = mount("--bind", point / "@home/inner")
    for directory in (point, point / "@home", point / "@home/inner/file", home, home / "inner", bound, bound / "file"):
        assert paths(directory) == sorted(drives), directory


@pytest.fixture
def overlay(loop_drive, program, mount):
    """Two drives, with the lower and the upper directory of an overlay, and where it is mounted."""
    drives = [loop_drive(32 * MIB) for _ in range(2)]
    for drive in drives:
        subprocess.run([program("mkfs.ext4", "e2fsprogs"), "-q", drive], check=True)
    lower, upper = (mount(drive) for drive in drives)
    for directory in (lower / "a,b", upper / "up", upper / "work"):
        directory.mkdir()
    (lower / "a,b/below").touch()
    options = f"lowerdir={str(lower)}/a\\,b,upperdir={upper}/up,workdir={upper}/work"
    return drives, mount("-t", "overlay", "overlay", "-o", options)


def test_an_overlay_is_on_the_drives_of_its_directories(overlay):
    drives, merged = overlay
    assert paths(merged) == paths(merged / "below") == sorted(drives)


def recorded(blkreel, source, drives, directory, trace):
    """The rows of a capture of the working directory, the default, with writes of 4 MiB."""
    skip_unless_it_runs(source, drives[0])
    result = blkreel("capture", "--source", source, "-o", trace, "--", "dd", "if=/dev/urandom", "of=out", "bs=1M",
                     "count=4", "conv=fsync", "status=none", cwd=directory, check=False)
    assert_recorded(result.returncode, result.stderr, source)
    captured = open_trace(trace)
    assert sorted(device["path"] for device in captured.metadata["devices"]) == sorted(drives)
    return captured.table().to_pandas()


@DIRECTORY_SOURCES
def test_a_capture_of_a_directory_on_btrfs(btrfs, blkreel, tracer, tmp_path, source):
    drives, point = btrfs
    rows = recorded(blkreel, source, drives, point / "@home/inner", tmp_path / "t.parquet")
    assert rows[rows.op == 1].length_bytes.sum() >= 4 * MIB


@DIRECTORY_SOURCES
def test_a_capture_of_a_directory_on_overlayfs(overlay, blkreel, tracer, tmp_path, source):
    drives, merged = overlay
    rows = recorded(blkreel, source, drives, merged, tmp_path / "t.parquet")
    upper = sorted(drives).index(drives[1])
    assert rows[(rows.op == 1) & (rows.device == upper)].length_bytes.sum() >= 4 * MIB


MKFS = {"ext4": ["mkfs.ext4", "-q", "-F"], "xfs": ["mkfs.xfs", "-q", "-f"], "btrfs": ["mkfs.btrfs", "-q", "-f"]}
PACKAGES = {"ext4": "e2fsprogs", "xfs": "xfsprogs", "btrfs": "btrfs-progs"}
# Of which reads and writes the file is recorded: the table of docs/capture.md.
FILES = {"ext4": "buffered reads, direct reads, writeback", "xfs": "buffered reads, direct reads, writeback",
         "btrfs": "buffered reads, writeback", "overlayfs": "buffered reads, direct reads, writeback"}


@pytest.mark.parametrize("kind", FILES)
def test_files_of_each_file_system(loop_drive, program, mount, blkreel, tmp_path, kind):
    drive, below = loop_drive(400 * MIB), "ext4" if kind == "overlayfs" else kind
    subprocess.run([program(MKFS[below][0], PACKAGES[below]), *MKFS[below][1:], drive], check=True)
    directory = mount(drive)
    data = directory
    if kind == "overlayfs":
        for name in ("lower", "upper", "work"):
            (directory / name).mkdir()
        data = directory / "lower"
    for name in ("buffered", "direct"):
        (data / name).write_bytes(os.urandom(MIB))
    subprocess.run(["sync", "--file-system", directory], check=True)
    if kind == "overlayfs":
        directory = mount("-t", "overlay", "overlay", "-o",
                          f"lowerdir={data},upperdir={data.parent}/upper,workdir={data.parent}/work")
    read = "dd bs=64k of=/dev/null status=none if="
    script = (f"{read}direct iflag=direct; {read}buffered; dd if=/dev/urandom of=written bs=64k count=16 status=none; "
              "sync --file-system .")
    blkreel("capture", "--path", directory, "--files", "--cold", "-o", tmp_path / "t.parquet", "--", "sh", "-c", script,
            cwd=directory)
    trace = open_trace(tmp_path / "t.parquet")
    names = {entry["inode"]: Path(entry["path"]).name for entry in trace.metadata["files"]}
    rows = trace.table().to_pandas()
    rows["file"] = rows.inode.map(names)
    recorded = [words for words, name, op in (("buffered reads", "buffered", 0), ("direct reads", "direct", 0),
                                              ("writeback", "written", 1))
                if rows[(rows.file == name) & (rows.op == op)].length_bytes.sum() >= MIB]
    assert ", ".join(recorded) == FILES[kind]
    is_metadata = rows["flags"].to_numpy() & FLAGS["metadata"] != 0
    assert set(rows.inode) <= {*names, 0, -1} and (rows[is_metadata].inode == 0).all()
    if "used_ns" in rows:
        # Of a read whose completion the kernel kept from BPF nobody knows what came after it.
        assert (rows[(rows.file == "buffered") & (rows.latency_ns >= 0)].used_ns >= 0).all()
        # btrfs reads the file through the page cache here.
        assert (rows[rows.file == "direct"].used_ns == -1).all() or kind == "btrfs"


@pytest.fixture
def two_files(request, loop_drive, program, mount, tmp_path):
    """(drives, shell commands, their two files with 1 MiB each): the files have one inode number."""
    drives = [loop_drive(128 * MIB) for _ in range(2)]
    if request.param == "subvolumes":
        drives.pop()
        subprocess.run([program(MKFS["btrfs"][0], PACKAGES["btrfs"]), *MKFS["btrfs"][1:], *drives], check=True)
        directory = mount(*drives)
        for words in (["create", "first"], ["snapshot", "first", "second"]):
            subprocess.run(["btrfs", "subvolume", *words], cwd=directory, check=True, capture_output=True)
            (directory / words[-1] / "file").write_bytes(os.urandom(MIB))
            subprocess.run(["sync", "--file-system", directory], check=True)
        files = [directory / name / "file" for name in ("first", "second")]
        return drives, "".join(f"cat '{file}' >/dev/null; stat -c %i '{file}'; " for file in files), files
    for drive in drives:
        subprocess.run([program(MKFS["ext4"][0], PACKAGES["ext4"]), *MKFS["ext4"][1:], drive], check=True)
    if request.param == "deletion":
        drives.pop()
        directory = mount(*drives)
        files = [directory / name for name in ("first", "second")]
    else:
        files = [mount(drive) / "file" for drive in drives]
    write, delete = "dd if=/dev/urandom bs=64k count=16 status=none", "rm" if request.param == "deletion" else ":"
    return drives, "".join(f"{write} of='{file}'; sync '{file}'; stat -c %i '{file}'; {delete} '{file}'; "
                           for file in files), files


@pytest.mark.parametrize(("two_files", "kind"), [
    ("file systems", "tp_btf"), ("subvolumes", "tp_btf"), ("deletion", "tp_btf"), ("subvolumes", "raw_tp")],
    indirect=["two_files"])
def test_files_with_one_inode_number_have_their_own_names(two_files, blkreel, tmp_path, kind):
    drives, script, files = two_files
    (tmp_path / "script").write_text(script)
    with open(tmp_path / "numbers", "w") as numbers:
        subprocess.run([blkreel.command, "capture", *drives, "--files", "--cold", "--programs", kind, "-o",
                        tmp_path / "t.parquet", "--", "sh", "-e", tmp_path / "script"], check=True, stdout=numbers,
                       env=blkreel.environment)
    first, second = [line for line in (tmp_path / "numbers").read_text().splitlines() if line.isdigit()]
    assert first == second, "the case is not what it is meant to be"
    trace = open_trace(tmp_path / "t.parquet")
    names = {entry["inode"]: entry["path"] for entry in trace.metadata["files"]}
    rows = trace.table().to_pandas()
    data = rows[rows.inode > 0].groupby(rows.inode.map(names)).length_bytes.sum()
    assert data.to_dict() == {str(file): MIB for file in files}
    assert int(first) in names


def test_the_table_of_the_docs_has_what_is_tried():
    text = (Path(__file__).parents[4] / "docs/capture.md").read_text()
    table = text.partition("| file system | `--files` has the file of |\n|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == [f"| {kind} | {files} |" for kind, files in FILES.items()]
