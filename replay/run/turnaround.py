"""What the replaying thread needs from the end of an I/O at the drive to the next one at the drive.

The captured time between two I/Os of a program has what the program needed for that. So the engine counts a completion
as earlier by what it needs itself: for an I/O from the drive to the engine, and from the engine to the drive.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from blkreel.replay.drive.claim import held
from blkreel.replay.drive.target import Target, engine_options
from blkreel.replay.engine.engine import DEPENDENCY_COLUMNS, Batch, Engine, EngineOptions, Lane
from blkreel.replay.engine.untimed_io import INTERRUPTED, Interrupted
from blkreel.replay.plan.batch import plan_batch
from blkreel.traces.format.schema import OPS

HELPER = Path(__file__).with_name("blkreel-turnaround")

_READS, _READ_BYTES = 128, 4096
_FEWEST = 32  # that a decile is of
_LONGEST_NS = 500_000_000
_TIMEOUT_S = 10
_LEAD_NS = 1_000_000
_PAUSE_NS = 20_000  # in which the engine does what it does after a completion


def turnaround_ns(targets: Sequence[Target], passthrough: bool, engine: Engine) -> int | None:
    """Of the drive with the smallest; None if it is not known of any.

    Each drive gets 128 reads of 4 KiB at random places, one after the other, for at most half a second. BPF programs
    measure the times between them at the drive, and those of the engine between them are subtracted. Of both, the first
    decile counts, because one that is too long would make the replay too fast. Without the privilege for BPF, or on a
    drive without requests of its own (a volume), it is unknown. Raises Interrupted after Ctrl-C.
    """
    times_ns = [_measured_ns(target, passthrough, engine) for target in targets]
    return min((time_ns for time_ns in times_ns if time_ns is not None), default=None)


def _measured_ns(target: Target, passthrough: bool, engine: Engine) -> int | None:
    if target.disk_block is None:
        return None
    device = (target.disk_block / "dev").read_text().strip()
    batches: list[Batch] = []
    with held(target) as claim, _watched(device) as helper:
        if helper is None:
            return None
        options = EngineOptions(**engine_options([target]), claims=(claim,) if claim else (), realtime=True,
                                passthrough=passthrough, stop_ns=_LONGEST_NS)
        totals = engine(options, [Lane([_reads(target)], 1)], batches.append, lambda note: None)
        measured = _result(helper)
    if totals.get("stopped") == INTERRUPTED or totals.get("asked_to_stop"):
        raise Interrupted("the replay was interrupted before its first I/O", "run the same command again")
    # As the engine sees them: each read begins after the end of the one before it.
    submit_ns, complete_ns = (np.sort(np.concatenate([np.empty(0, np.int64), *(rows[name] for rows in batches)]))
                              for name in ("submit_ns", "complete_ns"))
    own_ns = np.sort(submit_ns[1:] - complete_ns[:-1])
    if measured is None or min(measured[0], len(own_ns)) < _FEWEST:
        return None
    return max(0, measured[1] - int(own_ns[len(own_ns) // 10]))


def _reads(target: Target) -> Batch:
    """Each one waits for the one before it."""
    length_bytes = max(_READ_BYTES, target.block_bytes)
    offset_bytes = np.random.default_rng(1).integers(0, target.size_bytes // length_bytes, _READS) * length_bytes
    after = np.minimum(np.arange(_READS), 1)
    columns: dict[str, Any] = dict.fromkeys((name for name, _ in DEPENDENCY_COLUMNS), 0)
    columns |= {"after_1": after, "delay_ns": _PAUSE_NS * after}
    return plan_batch(offset_bytes, length_bytes, OPS["read"], due_ns=_LEAD_NS, **columns)


@contextmanager
def _watched(device: str) -> Iterator[subprocess.Popen[str] | None]:
    """The program that measures a drive; None if it cannot. Ctrl-C ends the engine, which then ends it."""
    with subprocess.Popen([HELPER, device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          start_new_session=True) as helper:
        try:
            assert helper.stdout is not None
            yield helper if helper.stdout.readline() == "ready\n" else None
        finally:
            helper.kill()


def _result(helper: subprocess.Popen[str]) -> tuple[int, int] | None:
    """The number of the times and their first decile; None if the program gives none."""
    try:
        output, _ = helper.communicate(timeout=_TIMEOUT_S)
        count, decile_ns = map(int, output.split())
    except (subprocess.TimeoutExpired, ValueError):
        return None
    return count, decile_ns
