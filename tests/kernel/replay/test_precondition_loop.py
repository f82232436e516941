"""Drives put into a state, and what is on them then."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import has_helper
from loop_device import detach_loop
from tree import TREE
from waiting import wait_until

from blkreel.traces.format.schema import OPS

sys.path.insert(0, str(TREE))
from empty_image import digest, empty_image, stamped  # noqa: E402
from small_trace import new_trace  # noqa: E402

from measurements.replay.drive_pair import CannotMake, slow_drive  # noqa: E402

pytestmark = pytest.mark.kernel

MIB = 1 << 20
BLOCK = 4096


def blocks(image):
    return np.frombuffer(image.read_bytes(), np.uint8).reshape(-1, BLOCK)


def counted(drive):
    """Bytes written and discarded, by the kernel's count."""
    fields = Path(f"/sys/class/block/{Path(drive).name}/stat").read_text().split()
    return int(fields[6]) * 512, int(fields[13]) * 512


def told(blkreel, drive):
    """The state, as `blkreel drives` has it in its table, which breaks lines."""
    drives = json.loads(blkreel("drives", "--json").stdout)["drives"]
    return {entry["path"]: entry["state_words"] for entry in drives}[str(drive)]


def test_client_leaves_95_percent_written_and_a_part_at_random(blkreel, loop_drive):
    size = 64 * MIB
    drive = loop_drive(size)
    image = loop_drive.image_of(drive)
    image.write_bytes(b"\xff" * size)
    written_before, discarded_before = counted(drive)
    result = blkreel("precondition", drive, "--state", "client", "--rest", "100ms", "--json")
    written, discarded = counted(drive)

    filled = size * 95 // 100 // (128 * 1024) * (128 * 1024)
    assert written - written_before == filled + size // 32
    assert discarded - discarded_before == size
    data = blocks(image)
    has_data = data.any(axis=1)
    assert has_data[:filled // BLOCK].all()
    assert not has_data[filled // BLOCK:].any(), "the rest is erased"
    assert len(np.unique(data[:filled // BLOCK], axis=0)) == filled // BLOCK, "no block is like another"

    state = json.loads(result.stdout)["state"]
    assert state["name"] == "client"
    assert state["idle_ns"] == 100_000_000
    assert state["scale"] == size / (256 << 30)
    drives = json.loads(blkreel("drives", "--json").stdout)["drives"]
    assert {entry["path"]: entry["state"]["name"] for entry in drives}[drive] == "client"


@pytest.mark.parametrize(("words", "share", "volume"), [
    (["fresh"], 0, 0), (["full"], 1, 1), (["op25"], 0.75, 0.75), (["enterprise"], 1, 2),
    (["enterprise", "--permutation"], 1, 2), (["enterprise+op25"], 0.75, 1.5),
    (["client+op25", "--rest", "0s"], None, None), (["data", "--span", "5MiB"], 5 / 16, 5 / 16),
    (["data+op25", "--span", "1MiB"], 1 / 16, 1 / 16)])
def test_the_other_states(blkreel, loop_drive, words, share, volume):
    size = 16 * MIB
    drive = loop_drive(size)
    loop_drive.image_of(drive).write_bytes(b"\xff" * size)
    before, _ = counted(drive)
    result = blkreel("precondition", drive, "--state", *words)
    has_data = stamped(loop_drive.image_of(drive))
    if share is None:
        filled = size * 3 // 4 * 95 // 100 // (128 << 10) * (128 << 10)
        share, volume = filled / size, (filled + size * 3 // 4 // 32) / size
    assert counted(drive)[0] - before == volume * size
    assert has_data.sum() == share * size // BLOCK
    assert has_data[:int(share * size) // BLOCK].all()
    read = re.search(r"([\d,]+) blocks of 4 KiB read back, all as written", result.stdout)
    wanted = min(3000, int(share * size) // BLOCK)
    assert wanted <= int(read[1].replace(",", "")) <= wanted + 2 if wanted else not read
    if share < 1:
        assert "of unwritten space read as zeros" in result.stdout


def test_each_step_ends_with_a_flush_and_none_comes_between(blkreel, loop_drive):
    """What is noted as done is on the drive then, and the method has no others."""
    drive = loop_drive(64 * MIB)
    stat = Path(f"/sys/class/block/{Path(drive).name}/stat")
    if Path(f"/sys/class/block/{Path(drive).name}/queue/write_cache").read_text().strip() != "write back":
        pytest.skip("a loop device without a cache gets no flush")
    before = int(stat.read_text().split()[15])
    blkreel("precondition", drive, "--state", "client", "--rest", "0s")
    assert int(stat.read_text().split()[15]) - before == 4, "erasing, filling, overwriting, resting"


def test_data_in_two_spans(blkreel, loop_drive):
    size = 16 * MIB
    drive = loop_drive(size)
    loop_drive.image_of(drive).write_bytes(b"\xff" * size)
    blkreel("precondition", drive, "--state", "data", "--span", "8MiB-9MiB", "--span", "1MiB")
    has_data = stamped(loop_drive.image_of(drive))
    assert np.flatnonzero(has_data).tolist() == [*range(256), *range(2048, 2304)]
    for wrong, words in (("much", "invalid --span"), ("9GB", "beyond"), ("2MiB-1MiB", "empty"),
                         ("1MiB-", "invalid --span")):
        result = blkreel("precondition", drive, "--state", "data", "--span", wrong, check=False)
        assert result.returncode == 2, wrong
        assert words in result.stderr


@pytest.fixture
def reads(tmp_path):
    """A trace that reads 300 blocks it never wrote, and writes some others."""
    random = np.random.default_rng(3)
    return new_trace(tmp_path / "t.parquet", drive_bytes=16 * MIB, submit_ns=np.arange(400) * 100_000, latency_ns=1000,
                     offset_bytes=random.permutation(4096)[:400] * BLOCK, length_bytes=BLOCK,
                     op=np.where(np.arange(400) < 300, OPS["read"], OPS["write"]))


def test_what_a_trace_reads_is_written_once(blkreel, loop_drive, reads, tmp_path):
    """By the state; the replays of that trace find it there, those of another map do not."""
    drive = loop_drive(16 * MIB)
    before, discarded = counted(drive)
    state = json.loads(blkreel("precondition", drive, "--state", "trace", "--trace", reads, "--json").stdout)["state"]
    assert counted(drive) == (before + 300 * BLOCK, discarded), "nothing is erased"
    assert state["trace"]["sha256"] == digest(reads)
    assert state["trace"]["map"] == {"name": "identity"}
    assert stamped(loop_drive.image_of(drive)).sum() == 300

    def replayed(*words):
        before, _ = counted(drive)
        run = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        result = blkreel("replay", reads, "--on", drive, "-o", run, "--json", *words, code=(0, 3))
        account = json.loads(result.stdout)["run"]
        assert not account["error_ops"]
        return account, counted(drive)[0] - before, result

    account, written, result = replayed()
    assert written == 100 * BLOCK
    assert account["prefill"] == {"extents": account["prefill"]["extents"], "bytes": 300 * BLOCK, "by_state": True}
    assert account["unwritten_bytes"] == 0
    assert account["state"]["name"] == "trace"
    assert f"state of {drive}: trace, prepared " in result.stderr
    assert "nothing written since" in result.stderr
    account, written, result = replayed()
    assert written == 100 * BLOCK, "the second one, too"
    assert account["state"]["written_since_bytes"] == 100 * BLOCK
    assert [run["written_bytes"] for run in account["state"]["since"]] == [100 * BLOCK]
    assert "410 KB written since" in result.stderr
    account, written, _ = replayed("--map", "compact")
    assert written == 400 * BLOCK
    assert "by_state" not in account["prefill"]
    subprocess.run(["blkdiscard", drive], check=True)  # behind its back: nobody can know
    blkreel("precondition", drive, "--state", "full")
    account, written, _ = replayed()
    assert written == 400 * BLOCK, "another state is another one"
    shown = told(blkreel, drive)
    assert "full, prepared" in shown and "1.64 MB written since" in shown


def test_a_state_of_a_trace_lies_on_the_one_before(blkreel, loop_drive, reads):
    drive = loop_drive(16 * MIB)
    blkreel("precondition", drive, "--state", "full")
    told = blkreel("precondition", drive, "--state", "trace", "--trace", reads).stdout
    assert "on top of full, prepared" in told


def test_what_others_write_is_told(blkreel, loop_drive):
    drive = loop_drive(16 * MIB)
    blkreel("precondition", drive, "--state", "full")
    assert "nothing written since" in told(blkreel, drive)
    subprocess.run(["dd", "if=/dev/zero", f"of={drive}", "bs=1M", "count=2", "oflag=direct", "status=none"], check=True)
    assert "nothing written since, and 2.10 MB by others" in told(blkreel, drive)


def test_an_image_emptied_below_its_loop_device(blkreel, loop_drive):
    """With a write by way of the loop device, which accounts for the time of the image but not for its lost blocks."""
    drive = loop_drive(16 * MIB)
    blkreel("precondition", drive, "--state", "full")
    os.truncate(loop_drive.image_of(drive), 0)
    os.truncate(loop_drive.image_of(drive), 16 * MIB)
    assert told(blkreel, drive) == "unknown: it was full, and another program changed its image since"
    subprocess.run(["dd", "if=/dev/zero", f"of={drive}", "bs=1M", "count=2", "oflag=direct", "status=none"], check=True)
    assert told(blkreel, drive) == "unknown: it was full, and another program changed its image since"


def test_deleted_images_of_one_name_have_states_of_their_own(blkreel, loop_drive, tmp_path):
    drives = []
    try:
        for _ in range(2):
            (tmp_path / "image").write_bytes(bytes(16 * MIB))
            attach = ["losetup", "--find", "--show", tmp_path / "image"]
            drives.append(subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip())
            (tmp_path / "image").unlink()
        blkreel("precondition", drives[0], "--state", "full")
        assert "full" in told(blkreel, drives[0])
        assert told(blkreel, drives[1]) == "unknown"
    finally:
        for drive in drives:
            detach_loop(drive)


def progress_of(blkreel):
    """What is noted of a preparation that goes on, {} before and after."""
    for path in Path(blkreel.environment["BLKREEL_STATE_DIR"]).glob("*.preparing"):
        try:
            return json.loads(path.read_text())["preparing"]
        except (OSError, ValueError):
            pass
    return {}


def at_step(blkreel, step):
    return progress_of(blkreel).get("step") == step


def test_a_kill_costs_seconds(blkreel, tmp_path):
    """On a drive that writes at most 105 MB/s: 32 times 128 KiB in 40 ms, however fast this machine is.

    The helper tells what is done twice a second, and notices that its parent is gone as late as that.
    """
    size = 768 * MIB
    empty_image(tmp_path / "image", size)
    try:
        with slow_drive(tmp_path / "image", 40_000_000) as drive:
            before = counted(drive)[0]
            process = blkreel.start("precondition", drive, "--state", "full")
            wait_until(lambda: progress_of(blkreel).get("percent", 0) > 50, process)
            process.kill()
            process.communicate()
            wait_until(lambda: not has_helper(drive))
            written, noted = counted(drive)[0] - before, progress_of(blkreel)["percent"]
            result = blkreel("precondition", drive, "--state", "full")
            rest = counted(drive)[0] - before - written
    except CannotMake as error:
        pytest.skip(str(error))
    assert f"resuming full at {noted:.0f} %" in result.stderr and noted > 50
    assert "all as written" in result.stdout
    assert size - written <= rest <= size * (101 - noted) / 100, "starting over would be all"


@pytest.fixture
def interrupted(blkreel, loop_drive):
    """(a drive whose preparation was interrupted in its rest, the command without the rest's time)."""
    drive = loop_drive(16 * MIB)
    words = ["precondition", drive, "--state", "client", "--rest"]
    process = blkreel.start(*words, "600s")
    wait_until(lambda: at_step(blkreel, 3), process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "run the same command again to resume" in errors
    return drive, words


def test_what_others_wrote_meanwhile_ends_it(blkreel, interrupted):
    drive, words = interrupted
    subprocess.run(["dd", "if=/dev/zero", f"of={drive}", "bs=1M", "count=2", "oflag=direct", "status=none"], check=True)
    result = blkreel(*words, "0s")
    assert re.search(r"discarding client at 100 %, interrupted \d+ s ago: 2.10 MB of external writes", result.stderr)
    assert "all as written" in result.stdout


def test_an_image_on_a_full_disk_names_that_disk(blkreel, tiny_filesystem):
    """Of a write that is cut short there the kernel gives no reason."""
    subprocess.run(["mount", "-o", "remount,size=1000k", tiny_filesystem], check=True)
    image = empty_image(tiny_filesystem / "image", 8 * MIB)
    assert f"df -h {image}" in blkreel("precondition", image, "--state", "full", code=1).stderr
