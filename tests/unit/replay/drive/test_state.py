"""What is remembered of a drive: never that less was done to it than was."""

import json
import os
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from damaged import placed, places
from empty_image import empty_image

from blkreel.common.device import Drive
from blkreel.common.errors import BlkreelError
from blkreel.replay.drive import evidence as drive_evidence
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.state import DriveState, about_to_write, load, save, words
from blkreel.replay.drive.target import Target, find_target
from blkreel.replay.plan.extents import Extents, MappedBlocks
from blkreel.replay.prepare.restore import StateRecipe
from blkreel.replay.prepare.resume_point import state_words
from blkreel.replay.prepare.states import state_for
from blkreel.traces.blocksets.block_set import BlockSet

MIB, GB = 1 << 20, 10**9
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def target(tmp_path):
    return find_target(empty_image(tmp_path / "image", 64 * MIB))


def before(**times):
    return (NOW - timedelta(**times)).isoformat(timespec="seconds")


def a_run(written, discarded=0, ended=True):
    return {"by": "a", "at": before(hours=1), "written_bytes": written, "discarded_bytes": discarded, "ended": ended}


@pytest.mark.parametrize(("state", "others_bytes", "told"), [
    (DriveState(), None, "unknown"),
    (DriveState(notes=["preparing client did not end"]), 7, "unknown: preparing client did not end"),
    (DriveState("client", before(hours=2)), None, "client, prepared 2 h ago, nothing written since"),
    (DriveState("client", before(hours=2), written_since_bytes=3_100_000_000, since=[a_run(3_100_000_000)]), 0,
     "client, prepared 2 h ago, 3.10 GB written since"),
    (DriveState("full", before(minutes=3), written_since_bytes=GB, discarded_since_bytes=2 * GB,
                since=[a_run(GB, 2 * GB)]), None,
     "full, prepared 3 min ago, 1.00 GB written and 2.00 GB discarded since"),
    (DriveState("full", before(days=3), written_since_bytes=3 * GB,
                since=[a_run(GB), a_run(2 * GB, ended=False)]), None,
     "full, prepared 3 days ago, up to 3.00 GB written since"),
    (DriveState("full", before(seconds=4), written_since_bytes=GB, since=[a_run(GB), a_run(None, ended=False)]), None,
     "full, prepared 4 s ago, at least 1.00 GB written since"),
    (DriveState("full", before(seconds=4), since=[a_run(None, None, ended=False)]), None,
     "full, prepared 4 s ago, at least something written since"),
    (DriveState("client+op25", before(hours=30)), 5 * GB,
     "client+op25, prepared 30 h ago, nothing written since, and 5.00 GB by others"),
    (DriveState("full", (NOW + timedelta(hours=5)).isoformat()), None, "full, prepared 0 s ago, nothing written since"),
])
def test_in_words(state, others_bytes, told):
    assert words(state, NOW, others_bytes) == told
    assert words(state.account(), NOW, others_bytes) == told, "from a run's metadata, too"


def test_a_run_counts_by_its_bound_until_it_has_ended(target):
    save(target, DriveState(name="full", filled_bytes=64 * MIB))
    tell = about_to_write(target, 10 * MIB, MIB, by="run a")
    during = load(target)
    assert (during.written_since_bytes, during.discarded_since_bytes) == (10 * MIB, MIB)
    assert [(run["by"], run["ended"]) for run in during.since] == [("run a", False)]
    assert datetime.fromisoformat(during.since[0]["at"]).tzinfo
    tell(4 * MIB, 0)
    after = load(target)
    assert (after.written_since_bytes, after.discarded_since_bytes) == (4 * MIB, 0)
    assert after.since[0]["ended"]
    assert after.covers(64 * MIB)


def test_a_killed_run_is_followed_by_another(target):
    """The first never told its end: its bound stays, whatever the next one does."""
    save(target, DriveState(name="full"))
    about_to_write(target, 10 * MIB, 0, by="killed")
    about_to_write(target, 5 * MIB, 0, by="next")(2 * MIB, 0)
    state = load(target)
    assert state.written_since_bytes == 12 * MIB
    assert [run["ended"] for run in state.since] == [False, True]
    assert "up to 12.6 MB written" in words(state, NOW)


def test_runs_at_one_time_are_told_apart(target):
    save(target, DriveState(name="full"))
    first, second = about_to_write(target, 10 * MIB, 0, by="a"), about_to_write(target, 20 * MIB, 0, by="b")
    second(1, 0)
    first(2, 0)
    assert {run["by"]: run["written_bytes"] for run in load(target).since} == {"a": 2, "b": 1}


def test_what_writes_nothing_leaves_no_trace(target):
    save(target, DriveState(name="full"))
    about_to_write(target, 0, 0, by="reads")(0, 0)
    about_to_write(target, MIB, 0, by="stopped early")(0, 0)
    assert load(target).since == []
    assert load(target).written_since_bytes == 0


def test_a_run_that_ends_after_the_drive_was_prepared_anew_is_of_the_past(target):
    save(target, DriveState(name="full"))
    tell = about_to_write(target, MIB, 0)
    save(target, DriveState(name="client"))
    tell(MIB, 0)
    assert load(target) == DriveState(name="client")


def test_a_drive_never_prepared_has_nothing_to_spoil(target):
    about_to_write(target, MIB, 0)(MIB, 0)
    assert load(target) == DriveState()


def test_only_the_last_runs_are_told_one_by_one(target, monkeypatch):
    monkeypatch.setattr(drive_state, "_MAX_RUNS", 4)
    save(target, DriveState(name="full"))
    for number in range(10):
        about_to_write(target, number, 1, by=f"run {number}")(number, 1)
    state = load(target)
    assert (state.written_since_bytes, state.discarded_since_bytes) == (sum(range(10)), 10)
    assert [run["by"] for run in state.since] == ["earlier runs", "run 7", "run 8", "run 9"]


def test_a_discard_of_unknown_size_may_have_taken_all(target):
    save(target, DriveState(name="full", filled_bytes=64 * MIB))
    about_to_write(target, 0, None)
    assert not load(target).covers(4096)


def test_spans_cover_what_lies_in_them():
    state = DriveState(name="data", filled_bytes=MIB, spans=[[0, MIB], [4 * MIB, 8 * MIB]])

    def blocks(*pairs):
        pairs = np.array(pairs) * MIB
        return Extents.of(pairs[:, 0], pairs[:, 1])

    assert state.covers_blocks(blocks((0, 1), (4, 5), (6, 8)))
    for outside in ((0, 2), (3, 5), (7, 9), (2, 3), (20, 21)):
        assert not state.covers_blocks(blocks((0, 1), outside))
    assert state.covers_blocks(MappedBlocks())
    assert state.covers_blocks(MappedBlocks(BlockSet.of(np.array([5 * MIB]), np.array([6 * MIB]))))
    assert not DriveState(spans=[[0, MIB]]).covers_blocks(blocks((0, 1))), "unknown"
    spoilt = DriveState(name="data", spans=[[0, MIB]], discarded_since_bytes=1)
    assert not spoilt.covers_blocks(blocks((0, 1)))
    assert DriveState(name="full", filled_bytes=2 * MIB).covers_blocks(blocks((1, 2)))


def test_a_drive_that_needs_no_other_preparation():
    full = state_for("full", 64 * MIB, 512, seed=1)
    random = {"compressible_percent": 0, "duplicates_percent": 0}
    state = DriveState(name="full", identity=json.loads(json.dumps(full.identity)), payload=random)
    assert state.is_as_prepared(full.identity, random)
    assert state.is_as_prepared(state_for("full", 64 * MIB, 512, seed=2).identity, random), "as good as any"
    assert not state.is_as_prepared(state_for("op25", 64 * MIB, 512, seed=1).identity, random)
    assert not state.is_as_prepared(full.identity, {**random, "duplicates_percent": 5})
    one, other = (state_for("data", 64 * MIB, 512, seed=1, spans=[(0, end)]).identity for end in (MIB, 2 * MIB))
    data = DriveState(name="data", identity=one, payload=random)
    assert data.is_as_prepared(one, random) and not data.is_as_prepared(other, random)
    assert not replace(state, since=[a_run(1)]).is_as_prepared(full.identity, random)
    assert not replace(state, name=None).is_as_prepared(full.identity, random)


def test_the_record_of_an_earlier_version_is_understood(target):
    """Before runs were told one by one."""
    save(target, DriveState())
    (file,) = drive_state.state_directory().glob("*.json")
    old = {"name": "client", "prepared_at": before(hours=2), "scale": 1.0, "seed": 1, "idle_ns": 0,
           "filled_bytes": 8, "written_since_bytes": 500, "discarded_since_bytes": 0, "notes": [], "payload": None}
    file.write_text(json.dumps({"version": 1, "state": old}))
    assert words(load(target), NOW) == "client, prepared 2 h ago, 500 B written since"
    about_to_write(target, 100, 0, by="new")(100, 0)
    assert load(target).written_since_bytes == 600
    assert [run["by"] for run in load(target).since] == ["earlier runs", "new"]


def test_another_size_is_another_drive(target):
    save(target, DriveState(name="full", capacity_bytes=32 * MIB))
    state = load(target)
    assert state.name is None
    assert words(state, NOW) == "unknown: it was full with 33.6 MB, and has 67.1 MB now"


def count(monkeypatch, write_bytes, power="a:1"):
    monkeypatch.setattr(drive_state, "count_now", lambda target: {"power": power, "write_bytes": write_bytes})


def test_what_others_wrote_is_what_the_kernel_counts_more(target, monkeypatch):
    count(monkeypatch, 5 * GB)
    state = DriveState(name="full", counted=drive_state.count_now(target), written_since_bytes=GB, since=[a_run(GB)])

    def others():
        return drive_state.written_by_others(target, state)

    count(monkeypatch, 6 * GB)
    assert others() == 0
    count(monkeypatch, 6 * GB + 4096)
    assert others() == 0, "too little to speak of"
    count(monkeypatch, 8 * GB)
    assert others() == 2 * GB
    count(monkeypatch, 8 * GB, power="b:1")
    assert others() is None, "the count began anew"
    count(monkeypatch, 8 * GB, power="a:2")
    assert others() is None, "another image under the name"
    count(monkeypatch, 8 * GB)
    state.since = [a_run(None, ended=False)]
    assert others() is None, "it may be that run's"
    assert drive_state.written_by_others(target, DriveState()) is None


def test_what_tells_of_a_loss_of_power(tmp_path, monkeypatch, target):
    """The machine's boot, and of a drive the number that each attaching counts up."""
    monkeypatch.setattr(drive_evidence, "BOOT_ID", tmp_path / "boot_id")
    (tmp_path / "boot_id").write_text("a\n")
    drive = replace(target, block=tmp_path / "block")
    drive.block.mkdir()
    assert drive_evidence.power_of(target) == drive_evidence.power_of(drive) == "a", "an old kernel"
    (drive.block / "diskseq").write_text("7\n")
    plugged = drive_evidence.power_of(drive)
    (drive.block / "diskseq").write_text("8\n")
    assert drive_evidence.power_of(drive) != plugged
    (tmp_path / "boot_id").write_text("b\n")
    assert drive_evidence.power_of(target) == "b"


def at_rest(target):
    """As an image is some time after it was written: what is written now has another time, whatever its resolution."""
    os.utime(target.path, ns=(0, 0))
    return target


def prepared(target):
    save(at_rest(target), DriveState(name="full", filled_bytes=64 * MIB))
    assert load(target).name == "full"


def test_an_image_that_was_emptied_is_in_no_state(target):
    prepared(target)
    os.truncate(target.path, 0)
    os.truncate(target.path, 64 * MIB)
    assert words(load(target), NOW) == "unknown: it was full, and another program changed its image since"


def test_an_image_that_was_made_anew_is_in_no_state(target):
    """Most file systems give it the inode of the one before."""
    prepared(target)
    target.path.unlink()
    empty_image(target.path, 64 * MIB)
    assert load(find_target(target.path)).name is None


def test_an_image_made_anew_with_all_that_stat_shows_is_another(target, monkeypatch):
    """The same inode, and the time of its last write set back: its birth is left."""
    prepared(target)
    status_of = drive_evidence.status_of
    assert load(at_rest(target)).name == "full"
    monkeypatch.setattr(drive_evidence, "status_of", lambda path: replace(status_of(path), born_ns=1))
    assert load(target).name is None


def test_runs_of_blkreel_change_an_image_and_leave_its_state(target):
    prepared(target)
    tell = about_to_write(target, MIB, 0, by="run")
    target.path.write_bytes(b"x" * 64 * MIB)
    assert load(target).name == "full"
    tell(MIB, 0)
    assert load(target).name == "full"
    assert load(target).written_since_bytes == MIB


def test_an_image_emptied_after_a_run_that_was_killed(target):
    target.path.write_bytes(b"x" * 64 * MIB)
    prepared(target)
    about_to_write(target, MIB, 0, by="killed")
    os.truncate(target.path, 0)
    os.truncate(target.path, 64 * MIB)
    assert words(load(target), NOW) == "unknown: it was full, and its image lost blocks since"


@pytest.fixture
def sysfs_drive(tmp_path, monkeypatch):
    """sysfs_drive(diskseq, written) is a drive without a serial."""
    monkeypatch.setattr(drive_evidence, "BOOT_ID", tmp_path / "boot_id")
    (tmp_path / "boot_id").write_text("a\n")

    def make(diskseq, written_sectors=0, discarded_sectors=0, **texts):
        block = tmp_path / "block"
        for name, text in {"diskseq": diskseq, "dev": "252:0", **texts,
                           "stat": f"9 0 9 0 1 0 {written_sectors} 0 0 0 0 0 0 {discarded_sectors} 0 0 0"}.items():
            (block / name).parent.mkdir(parents=True, exist_ok=True)
            (block / name).write_text(f"{text}\n")
        drive = Drive("zram0", "/dev/zram0", "zram", 252, 0, 64 * MIB, 4096, 4096)
        return Target(drive.path, drive, 64 * MIB, 4096, "", block)

    return make


def test_a_drive_that_another_program_discarded_covers_no_read(sysfs_drive):
    """fstrim is enough: the drive answers such reads without its flash."""
    drive = sysfs_drive(7, discarded_sectors=100)
    save(drive, DriveState(name="trace", filled_bytes=64 * MIB, counted=drive_state.count_now(drive), identity={}))
    about_to_write(drive, 0, 2048 * 512, by="a run")(0, 2048 * 512)
    own_only = load(sysfs_drive(7, discarded_sectors=2148))
    assert own_only.discarded_since_bytes == MIB and len(own_only.since) == 1
    state = load(sysfs_drive(7, discarded_sectors=2149))
    assert state.since[-1]["by"] == "other programs" and state.discarded_since_bytes == MIB + 512
    assert not state.covers(4096) and not state.is_as_prepared({}, None)
    # The entry is saved with the next run, and counted once.
    about_to_write(sysfs_drive(7, discarded_sectors=2149), MIB, 0, by="another run")(MIB, 0)
    assert load(sysfs_drive(7, discarded_sectors=2149)).discarded_since_bytes == MIB + 512


def test_drives_without_serial_are_told_apart(sysfs_drive, tmp_path):
    """By what the kernel counts up whenever one is attached, in this boot."""
    save(sysfs_drive(7), DriveState(name="full"))
    assert load(sysfs_drive(8)).name is None
    assert load(sysfs_drive(7)).name == "full"
    (tmp_path / "boot_id").write_text("b\n")
    assert load(sysfs_drive(7)).name is None


def test_namespaces_of_one_controller_are_told_apart(sysfs_drive):
    def namespace(number):
        drive = sysfs_drive(7, nsid=number)
        return replace(drive, drive=replace(drive.drive, serial="S3R 1AL"))

    save(namespace(1), DriveState(name="full"))
    assert load(namespace(2)).name is None
    assert load(namespace(1)).name == "full"


def test_a_volume_is_known_again_by_its_uuid_also_under_another_number(sysfs_drive):
    def volume(diskseq, number, uuid):
        drive = sysfs_drive(diskseq)
        return replace(drive, drive=replace(drive.drive, name=f"dm-{number}", kind="dm", serial=uuid))

    save(volume(7, 3, "LVM-1"), DriveState(name="full"))
    assert load(volume(8, 5, "LVM-1")).name == "full"
    assert load(volume(8, 5, "LVM-2")).name is None
    save(volume(7, 3, ""), DriveState(name="full"))
    assert (load(volume(7, 3, "")).name, load(volume(8, 3, "")).name) == ("full", None)


def test_a_drive_whose_counts_began_anew_was_reset(sysfs_drive):
    """zram keeps its diskseq over a reset."""
    save(sysfs_drive(7, 100), DriveState(name="full"))
    assert load(sysfs_drive(7, 101)).name == "full"
    assert words(load(sysfs_drive(7, 99)), NOW) == "unknown: it was full, and the drive was reset since"


def test_a_damaged_record_stops_no_command(target):
    """Each field with values of other types: the state is as recorded, or unknown."""
    state = state_for("data", 64 * MIB, 512, seed=1, spans=[(0, MIB)])
    save(target, DriveState(
        "data", before(hours=1), since=[a_run(MIB)], spans=[[0, MIB]], payload={"compressible_percent": 5},
        written_since_bytes=MIB, counted={"power": "a", "write_bytes": 1}, identity=dict(state.identity)))
    assert load(target).name == "data" and StateRecipe.of(target, load(target)) is not None
    path = drive_state.file_of(target)
    whole = json.loads(path.read_text())
    for place in places(whole):
        for value in (None, "yesterday", "2026-01-01", 5, -1, [], [None], [5], {}, {"a": 1}):
            path.write_text(json.dumps(placed(whole, place, value)))
            found = load(target)
            words(found, NOW, drive_state.written_by_others(target, found))
            state_words(target)
            found.covers_blocks(Extents(np.array([0]), np.array([MIB])))
            with suppress(BlkreelError):
                StateRecipe.of(target, found)
    for text in ("", "{}", '{"state": {"name": "full"}}', "[1]"):
        path.write_text(text)
        assert load(target).name is None
