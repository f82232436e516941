"""How far replays of a trace that was made to be shared agree with those of the original: on the typical drives,
simulated, since they have the same result for everyone."""

from itertools import combinations

from blkreel.common.errors import UsageError
from blkreel.common.progress import Progress
from blkreel.replay.simulated import spec
from blkreel.traces.format.metadata_types import DriveAgreement, ShareCertificate
from blkreel.traces.format.trace import Trace
from blkreel.traces.samples import called

from .prediction import Prediction, predict


def certify(original: Trace, shared: Trace, progress: Progress) -> ShareCertificate:
    """Simulate the replay of both. Raises UsageError if the trace has several drives, or no read nor load time."""
    if len(original.metadata.get("devices") or []) > 1:
        raise UsageError(f"--certify needs a trace of one drive: {called(original.path)} has several",
                         f"share each by itself: blkreel slice {called(original.path)} --device 0 -o part.parquet")
    pairs = {}
    for name in spec.typical_drives():
        drive = spec.parse(f"{spec.PREFIX}{name}")
        pairs[name] = [predict(trace, drive, None, progress) for trace in (original, shared)]
    drives = {name: _agreement(*pair) for name, pair in pairs.items()}
    errors = [abs(error) for drive in drives.values() for error in (drive["load_time"], drive["read_p99"])
              if error is not None]
    if not errors:
        raise UsageError(f"nothing to certify: {called(original.path)} has no reads and no known dependencies",
                         "omit --certify")
    orders = [(_time_ns(a[0]) < _time_ns(b[0]), _time_ns(a[1]) < _time_ns(b[1]))
              for a, b in combinations(pairs.values(), 2)]
    return {"pace": next(iter(pairs.values()))[0].pace, "drives": drives, "largest": max(errors),
            "pairs": len(orders), "swapped": sum(before != after for before, after in orders)}


def _agreement(original: Prediction, shared: Prediction) -> DriveAgreement:
    return {"load_time": _error(original.load_time_ns, shared.load_time_ns),
            "read_p99": _error(original.read_p99_ns, shared.read_p99_ns)}


def _error(original_ns: int | None, shared_ns: int | None) -> float | None:
    return shared_ns / original_ns - 1 if original_ns and shared_ns is not None else None


def _time_ns(prediction: Prediction) -> int:
    return prediction.load_time_ns or prediction.read_p99_ns or 0
