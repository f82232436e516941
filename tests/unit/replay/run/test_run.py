"""A run from its plan to its file, with an engine that stands in for the helper."""

import errno
import json
import os
from dataclasses import replace

import numpy as np
import pytest
from fake_engine import FakeEngine, replay
from quiet import progress

from blkreel.common.errors import BlkreelError, OutputExists
from blkreel.replay.drive import external_io
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.external_io import DiskCount
from blkreel.replay.drive.state import DriveState
from blkreel.replay.engine.engine import Lane
from blkreel.replay.engine.untimed_io import Interrupted
from blkreel.replay.plan.pace import ALL_IDLE, ORIGINAL
from blkreel.replay.plan.planner import plan_trace
from blkreel.replay.prepare.precondition import Preparation
from blkreel.replay.prepare.states import state_for
from blkreel.replay.run.directory import RunDirectory
from blkreel.replay.run.drive import RunDrive
from blkreel.replay.run.records import IoTotals
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS, RUN_SCHEMA
from blkreel.traces.format.writer import TraceWriter, output_error
from blkreel.traces.spool import spool
from blkreel.traces.spool.spool import recover

ROWS = 600


@pytest.fixture(autouse=True)
def unread(monkeypatch):
    """The engine writes nothing that could be read back."""
    monkeypatch.setattr(Preparation, "_verify", lambda self: 0)


def test_a_run_is_a_trace_that_names_its_source(plan, tmp_path):
    account = replay(plan, tmp_path / "run", FakeEngine())
    run = open_trace(tmp_path / "run")
    assert run.is_run
    assert run.schema.names == RUN_SCHEMA.names
    assert run.metadata["run"] == account
    rows, source = run.table().to_pandas(), plan.trace.table().to_pandas()
    assert len(rows) == ROWS
    joined = rows.merge(source, left_on="source_row", right_index=True, suffixes=("", "_source"))
    assert len(joined) == ROWS
    assert (joined["offset_bytes"] == joined["offset_bytes_source"]).all()
    assert (joined["op"] == joined["op_source"]).all()
    assert (rows["submit_ns"] - rows["due_ns"] == 200).all()
    assert (rows["latency_ns"] == 5000).all()
    assert account["completed_ops"] == account["planned_ops"] == account["issued_ops"] == ROWS
    assert account["lateness"]["p50_ns"] == 200
    assert account["as_planned"]
    assert account["partial"] is None
    assert account["wall_ns"] == (ROWS - 1) * 10_000 + 5000
    assert account["plan_ns"] == (ROWS - 1) * 10_000
    assert account["source"]["sha256"]
    assert account["verdict"]["level"] == "qualified", account["verdict"]
    certificate = account["certificate"]
    assert certificate["lateness"] == account["lateness"]
    assert certificate["arrivals"]["changed"]["max_ns"] == 0
    assert certificate["in_flight"]["captured"]["mean"] == certificate["in_flight"]["replayed"]["mean"] == 1
    assert certificate["altered_ops"] == certificate["dropped_ops"] == certificate["underruns"] == 0


def test_a_run_can_be_replayed_itself(plan, tmp_path, target):
    replay(plan, tmp_path / "run", FakeEngine())
    again = plan_trace(open_trace(tmp_path / "run"), target, pace=ORIGINAL, idle=ALL_IDLE)
    account = replay(again, tmp_path / "run2", FakeEngine())
    assert account["completed_ops"] == ROWS
    assert account["plan_ns"] == (ROWS - 1) * 10_000


def test_first_what_is_read_then_the_trace(plan, tmp_path):
    engine = FakeEngine()
    account = replay(plan, tmp_path / "run", engine)
    (first, filled), (second, issued) = engine.calls
    assert first.may_write
    assert second.may_write == [True]
    written_bytes = sum(batch["length_bytes"].sum() for batch in filled)
    assert written_bytes == plan.drives[0].prefill.bytes == account["prefill"]["bytes"]
    assert sum(len(batch["op"]) for batch in issued) == ROWS


@pytest.mark.parametrize(("column", "value"), [("offset_bytes", 512), ("length_bytes", 512), ("op", 4),
                                               ("source_row", 0)])
def test_a_changed_io_is_noticed(plan, tmp_path, column, value):
    def spoil(call, rows):
        if call == 2:
            rows[column][7] = value

    account = replay(plan, tmp_path / "run", FakeEngine(spoil))
    assert not account["as_planned"]
    assert account["verdict"]["level"] == "invalid"


def test_a_run_that_is_not_valid_stores_the_latency_logs_of_its_drives(plan, tmp_path, monkeypatch):
    logs = {"nvme0n1": {"Feature Status": 1}}
    monkeypatch.setattr("blkreel.replay.telemetry.recorder.Recorder.latency_logs", lambda recorder: logs)

    def spoil(call, rows):
        if call == 2:
            rows["op"][7] = 4

    stored = tmp_path / "run" / "latency-log.json"
    assert replay(plan, tmp_path / "run", FakeEngine(spoil))["latency_log"] == stored.name
    assert json.loads(stored.read_text()) == {"version": 1, "drives": logs}
    # That of a run without one does not stay beside a new run.
    logs.clear()
    assert replay(plan, tmp_path / "run", FakeEngine(spoil), force=True)["latency_log"] is None and not stored.exists()


def test_a_failed_io_is_counted_and_kept(plan, tmp_path):
    def spoil(call, rows):
        if call == 2:
            rows["status"][3] = -errno.EIO

    account = replay(plan, tmp_path / "run", FakeEngine(spoil))
    assert account["error_ops"] == 1
    assert list(account["errors"].values()) == [1] and next(iter(account["errors"])).endswith(" EIO")
    assert "EIO" in account["verdict"]["reasons"][0]["text"]
    assert (open_trace(tmp_path / "run").table()["status"].to_numpy() == -errno.EIO).sum() == 1


def test_a_missing_io_is_noticed(plan, tmp_path):
    account = replay(plan, tmp_path / "run", FakeEngine(
        lambda call, rows: {name: values[:-5] for name, values in rows.items()}))
    assert "5 of 600 planned I/Os missing" in str(account["verdict"])


def test_a_run_that_is_interrupted_after_its_last_io_is_recovered_with_all_of_them(plan, tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("blkreel.replay.run.run.zero_latency", interrupt)
    with pytest.raises(Interrupted) as error:
        replay(plan, tmp_path / "run", FakeEngine())
    assert error.value.remedy == f"write them with: blkreel recover {tmp_path / 'run'}"
    del error  # its traceback refers to the locked spool
    account = open_trace(recover(tmp_path / "run/records.parquet")).metadata["run"]
    assert account["issued_ops"] == account["completed_ops"] == ROWS
    assert "missing" not in str(account["verdict"])


def test_an_interrupted_run_is_readable_and_partial(plan, tmp_path):
    account = replay(plan, tmp_path / "run", FakeEngine(
        lambda call, rows: {n: v[-100:] for n, v in rows.items()} if call == 2 else rows, "interrupted"))
    run = open_trace(tmp_path / "run")
    assert run.rows == 100
    assert account["partial"] == "interrupted"
    assert account["verdict"]["level"] == "invalid"
    with pytest.raises(Interrupted) as error:
        replay(plan, tmp_path / "run2", FakeEngine(stopped="interrupted", at=1))
    assert error.value.exit_code == 130
    assert not (tmp_path / "run2").exists()


def test_an_interruption_before_the_first_io_leaves_nothing(plan, tmp_path):
    with pytest.raises(Interrupted, match="before its first I/O"):
        replay(plan, tmp_path / "run", FakeEngine(
            lambda call, rows: {n: v[:0] for n, v in rows.items()} if call == 2 else rows, "interrupted"))
    assert not (tmp_path / "run").exists()


def test_an_error_before_the_first_io_leaves_nothing(plan, tmp_path):
    def spoil(call, rows):
        if call == 2:
            raise BlkreelError("the helper broke")

    with pytest.raises(BlkreelError, match="the helper broke"):
        replay(plan, tmp_path / "run", FakeEngine(spoil))
    assert not (tmp_path / "run").exists()


def test_an_error_later_keeps_what_there_is(plan, tmp_path):
    with pytest.raises(BlkreelError, match="marked as partial"):
        replay(plan, tmp_path / "run", FakeEngine(error=BlkreelError("the helper broke")))
    run = open_trace(tmp_path / "run")
    assert run.rows == ROWS
    assert run.metadata["run"]["partial"] == "the helper broke"


def test_outputs_that_are_in_the_way(plan, tmp_path):
    replay(plan, tmp_path / "run", FakeEngine())
    with pytest.raises(OutputExists):
        RunDirectory(tmp_path / "run", False).check()
    assert replay(plan, tmp_path / "run", FakeEngine(), force=True)["completed_ops"] == ROWS

    (tmp_path / "died/.records.parquet.spool").mkdir(parents=True)
    with pytest.raises(BlkreelError, match="blkreel recover .*died, or"):
        RunDirectory(tmp_path / "died", False).check()
    RunDirectory(tmp_path / "died", True).check()

    (tmp_path / "other").mkdir()
    RunDirectory(tmp_path / "other", False).check()
    (tmp_path / "other/letter").write_text("dear")
    for force, error in ((False, OutputExists), (True, BlkreelError)):
        with pytest.raises(error) as raised:
            RunDirectory(tmp_path / "other", force).check()
        assert raised.value.remedy
    with pytest.raises(BlkreelError, match="is a file"):
        RunDirectory(tmp_path / "image", True).check()
    with pytest.raises(BlkreelError, match="image is not a directory"):
        RunDirectory(tmp_path / "image/run", False).check()
    RunDirectory(tmp_path / "no/such/run", False).check()
    assert not (tmp_path / "no").exists()  # made by create()


def test_a_prepared_drive_is_remembered_with_what_was_written_since(plan, tmp_path, target):
    engine = FakeEngine()
    state = state_for("full", target.size_bytes, target.block_bytes, seed=1)
    Preparation(target, state, 1, progress, engine=engine).run()
    assert [sum(int(batch["length_bytes"].sum()) for batch in rows) for _, rows in engine.calls] == [8 << 20, 8 << 20]
    remembered = drive_state.load(target)
    assert (remembered.name, remembered.filled_bytes) == ("full", 8 << 20)
    assert remembered.scale < 1
    account = replay(plan, tmp_path / "run", FakeEngine())
    assert account["state"]["name"] == "full"
    assert account["state"]["written_since_bytes"] == 0
    assert drive_state.load(target).written_since_bytes == plan.drives[0].prefill.bytes + plan.drives[0].changed_bytes


def test_a_filled_drive_has_no_unwritten_blocks(plan, tmp_path, target):
    bare = plan_trace(plan.trace, target, pace=ORIGINAL, idle=ALL_IDLE, prefill=False)
    account = replay(bare, tmp_path / "run", FakeEngine())
    assert account["unwritten_bytes"] == bare.drives[0].unwritten.bytes > 0
    assert account["verdict"]["level"] == "invalid"
    drive_state.save(target, DriveState(name="full", filled_bytes=target.size_bytes))
    assert replay(bare, tmp_path / "run2", FakeEngine())["unwritten_bytes"] == 0
    drive_state.about_to_write(target, 0, 4096)(0, 4096)
    assert replay(bare, tmp_path / "run3", FakeEngine())["unwritten_bytes"] > 0


def test_a_preparation_that_fails_leaves_the_state_unknown(target):
    drive_state.save(target, DriveState(name="full"))

    def spoil(call, rows):
        if call == 2:
            rows["status"][0] = -errno.ENOSPC

    state = state_for("client", target.size_bytes, target.block_bytes, seed=1, rest_ns=0)
    with pytest.raises(BlkreelError, match=r"filling .*ENOSPC.*df -h"):
        Preparation(target, state, 1, progress, engine=FakeEngine(spoil)).run()
    assert drive_state.load(target).name is None
    volume = replace(target, drive=replace(target.drive, kind="dm", backing_file=""))
    with pytest.raises(BlkreelError, match="ENOSPC.*thin pool"):
        Preparation(volume, state, 1, progress, engine=FakeEngine(spoil)).run()


def test_a_drive_that_refuses_discards_is_prepared_with_a_note(target):
    def spoil(call, rows):
        if call == 1:
            rows["status"][:] = -errno.EOPNOTSUPP

    state = state_for("full", target.size_bytes, target.block_bytes, seed=1)
    prepared = Preparation(target, state, 1, progress, engine=FakeEngine(spoil)).run()
    assert prepared.name == "full"
    assert "refused" in prepared.notes[0]


@pytest.mark.parametrize(("kind", "remedy"), [("dm", "cryptsetup refresh --allow-discards home"),
                                              ("disk", "--erase format")])
def test_without_discard_fresh_is_refused_with_what_this_kind_of_drive_can(target, tmp_path, kind, remedy):
    without = replace(target, block=tmp_path, drive=replace(target.drive, kind=kind, model="home"))
    with pytest.raises(BlkreelError, match=remedy):
        Preparation(without, state_for("fresh", target.size_bytes, target.block_bytes, seed=1), 1, progress).check()


@pytest.mark.parametrize(("slower", "rounds", "note"), [
    (lambda call: min(max(call - 3, 0), 6), 10, "steady after 10 rounds"),  # with each of the first six rounds
    (lambda call: call % 2, 25, "not steady after 25 rounds")], ids=["a drive that settles", "one that never does"])
def test_rounds_go_on(target, slower, rounds, note):
    def spoil(call, rows):
        rows["submit_ns"] = rows["submit_ns"] * (1 + slower(call))
        rows["complete_ns"] = rows["submit_ns"] + 5000

    engine = FakeEngine(spoil)
    state = state_for("pts", target.size_bytes, target.block_bytes, seed=1)
    prepared = Preparation(target, state, 1, progress, engine=engine).run()
    assert len(engine.calls) == 3 + rounds
    assert prepared.notes[0].startswith(note)
    assert len({options.seed for options, _ in engine.calls}) == len(engine.calls)


def test_a_state_that_cannot_be_remembered(target, monkeypatch):
    """Before anything is written: what nobody remembers would be lost on the next replay."""
    monkeypatch.setenv("BLKREEL_STATE_DIR", "/proc/nowhere")
    engine = FakeEngine()
    state = state_for("full", target.size_bytes, target.block_bytes, seed=1)
    with pytest.raises(BlkreelError, match="cannot save the state of .*export BLKREEL_STATE_DIR=DIR"):
        Preparation(target, state, 1, progress, engine=engine).run()
    assert not engine.calls


def test_a_disk_that_is_full_at_the_very_end_costs_no_row(plan, tmp_path, monkeypatch):
    def full(writer, metadata):
        raise output_error(writer.path, OSError(errno.ENOSPC, "No space left on device"))

    with monkeypatch.context() as patched:
        patched.setattr(TraceWriter, "close", full)
        with pytest.raises(BlkreelError) as raised:
            replay(plan, tmp_path / "run", FakeEngine())
    assert "no space left" in str(raised.value)
    assert f"blkreel recover {tmp_path}/run" in raised.value.remedy
    run = open_trace(recover(tmp_path / "run/records.parquet"))
    assert run.rows == ROWS
    assert run.metadata["run"]["partial"] is None
    assert run.metadata["run"]["as_planned"]
    assert not run.metadata.get("import_warnings")


def test_what_is_counted_is_in_the_file_where_the_disk_gets_full(plan, tmp_path, monkeypatch):
    """The second block of records does not find room: the run ends with the first."""
    reserve, asked = os.posix_fallocate, []

    def full(fd, offset, length):
        asked.append(length)
        if len(asked) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        reserve(fd, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(spool, "_RESERVE_LEAST_BYTES", 0)
    engine = FakeEngine()

    def twice(options, lanes, on_rows, on_note):
        halves = ({name: values[part] for name, values in batch.items()} for batch in lanes[0].batches
                  for part in (slice(0, len(batch["op"]) // 2), slice(len(batch["op"]) // 2, None)))
        return engine(options, [Lane(halves)], on_rows, on_note)

    with pytest.raises(BlkreelError, match="no space left.*marked as partial"):
        replay(plan, tmp_path / "run", twice)
    run = open_trace(tmp_path / "run")
    assert run.rows == run.metadata["run"]["completed_ops"] == ROWS // 2
    assert "no space left" in run.metadata["run"]["partial"]


def test_what_will_be_written_is_remembered_before_it_is(plan, tmp_path, target):
    """A kill comes without a word: whatever happens next, the state must not promise more than holds."""
    drive_state.save(target, DriveState(name="full", filled_bytes=target.size_bytes))
    seen = []
    replay(plan, tmp_path / "run", FakeEngine(lambda call, rows: seen.append(drive_state.load(target))))
    first, both = plan.drives[0].prefill.bytes, plan.drives[0].prefill.bytes + plan.drives[0].changed_bytes
    assert [state.written_since_bytes for state in seen] == [first, both]
    assert drive_state.load(target).written_since_bytes == both


def test_a_run_that_was_killed_knows_when_it_began(plan, tmp_path):
    engine = FakeEngine(error=BlkreelError("the helper broke"))

    def dies(options, batches, on_rows, on_note):
        on_note({"note": "progress", "start_monotonic_ns": 77})
        return engine(options, batches, on_rows, on_note)

    with pytest.raises(BlkreelError):
        replay(plan, tmp_path / "run", dies)
    assert open_trace(tmp_path / "run").metadata["epoch_ns"] == 77


def test_a_compare_is_no_external_write(plan, monkeypatch):
    """The kernel counts a command with data for the drive as a write, where it counts commands (Linux 6.13)."""
    monkeypatch.setattr(external_io, "counts_commands", lambda target: True)
    drive, issued = RunDrive(plan.drives[0], passthrough=True), IoTotals()
    counts = iter([DiskCount(0, 0, 0, 0), DiskCount(0, 0, 1, 4096)])
    monkeypatch.setattr(external_io, "count_around", lambda target, own: next(counts))
    drive.begin()
    drive.end()
    issued.add(np.array([OPS["compare"]]), np.array([4096]))
    drive.count_external(issued)
    assert drive.external_ios == 0


def test_external_io_is_unknown_where_the_kernel_counts_nothing(plan, monkeypatch):
    """iostats are switched off: a run on such a drive had no external I/O, whatever others did, and was valid.

    Those of a volume beside it may be on."""
    counts = iter([DiskCount(7, 4096, 7, 4096, target_ios=5), DiskCount(9, 1 << 20, 7, 4096, target_ios=5)])
    monkeypatch.setattr(external_io, "count_around", lambda target, own: next(counts))
    drive, issued = RunDrive(plan.drives[0], passthrough=False), IoTotals()
    drive.begin()
    drive.end()
    issued.add(np.array([OPS["read"]]), np.array([4096]))
    drive.count_external(issued)
    assert drive.external_ios is None
