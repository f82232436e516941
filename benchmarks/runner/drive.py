"""The drive of a test: whether it is the same drive, and in the state that the last step left."""

from datetime import UTC, datetime

from blkreel.benchmarks.benchmark_file import BenchmarkHeader, DriveSnapshot
from blkreel.common.device import describe, drive_units
from blkreel.common.emulated import account_of
from blkreel.common.errors import UsageError
from blkreel.common.units import format_bytes
from blkreel.replay.drive import safety
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.target import Target
from blkreel.replay.drive.usage import Kernel


def state_snapshot(target: Target) -> DriveSnapshot:
    """The remembered state of the drive, as test.json keeps it in drive_after."""
    state = drive_state.load(target)
    return {"at": datetime.now(UTC).isoformat(timespec="microseconds"), "name": state.name,
            "prepared_at": state.prepared_at, "written_bytes": state.written_since_bytes,
            "discarded_bytes": state.discarded_since_bytes}


def external_use(target: Target, snapshot: DriveSnapshot | None, step_label: str | None, *,
                 counted: bool = False) -> str | None:
    """What others did to the drive since the snapshot; None if nothing is known.

    step_label: the label of the test's own step that wrote since then. counted: also compare the write counter of the
    kernel, which includes programs other than blkreel.
    """
    if snapshot is None or snapshot["name"] is None:
        return None
    state = drive_state.load(target)
    if (state.name, state.prepared_at) != (snapshot["name"], snapshot["prepared_at"]):
        return f"its state is now {drive_state.words(state, datetime.now(UTC))}"
    step_runs = [run for run in state.since
                 if step_label is not None and run["by"] == step_label
                 and (run["at"] or "") >= snapshot["at"]]
    expected = [snapshot["written_bytes"] + sum(run["written_bytes"] or 0 for run in step_runs),
                snapshot["discarded_bytes"] + sum(run["discarded_bytes"] or 0 for run in step_runs)]
    if [state.written_since_bytes, state.discarded_since_bytes] != expected:
        external = [run["by"] for run in state.since if run not in step_runs]
        return f"last written by {external[-1]!r}" if external else "its remembered state was changed"
    external_bytes = drive_state.written_by_others(target, state) if counted else None
    return f"other programs wrote {format_bytes(external_bytes)} to it" if external_bytes else None


def is_named_only(target: Target) -> bool:
    """Whether naming the target is enough consent to overwrite it: a file has no serial to confirm."""
    return not target.is_nil and safety.endangered_drive(target, Kernel()) is None


def units_of(target: Target) -> list[str]:
    """What tells the drive apart from others of its model, as of drive_units()."""
    account = account_of(target.drive.backing_file)
    return drive_units([describe(target.drive)], [account] if account else [])


def check_unchanged(header: BenchmarkHeader, target: Target) -> None:
    """Raises UsageError if the target is not the drive that the test started on, or has another firmware or block size.
    """
    then = header["drive"]
    units = header.get("units") or drive_units([then])
    if (units, then["size_bytes"]) != (units_of(target), target.drive.size_bytes):
        model = f"{then['model'] or then['path']} of {format_bytes(then['size_bytes'])}"
        raise UsageError(f"{target.path} is another drive: the test was started on {model}",
                         "use the same drive: --on DEVICE")
    firmware = then.get("firmware", "")
    if firmware != target.drive.firmware:
        raise UsageError(f"firmware of {target.path} changed from {firmware!r} to {target.drive.firmware!r} since the "
                         "test was started", "start the test again with another -o")
    block_bytes = header.get("block_bytes", target.block_bytes)
    if block_bytes != target.block_bytes:
        raise UsageError(f"block size of {target.path} changed from {block_bytes} to {target.block_bytes} bytes: the "
                         "drive was formatted since the test was started", "start the test again with another -o")
