"""What a trace takes on a fitted drive, and how far such predictions were off for traces that were measured on it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from blkreel.common.errors import TraceError, UsageError
from blkreel.common.progress import Progress
from blkreel.common.units import format_ns
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import Batch
from blkreel.replay.engine.spans import RunSpan
from blkreel.replay.fidelity.queue_metrics import READ, WRITE, Ios, QueueMetrics, QueueModel
from blkreel.replay.fidelity.verdict import of_dependencies, withheld_of_load_time
from blkreel.replay.plan.dependencies import is_observed
from blkreel.replay.plan.pace import ALL_IDLE, DEPENDENT, ORIGINAL, with_compute
from blkreel.replay.plan.plan import PlannedCounts
from blkreel.replay.plan.planner import plan_trace
from blkreel.replay.run.simulate import simulate
from blkreel.replay.run.zero_latency import zero_latency
from blkreel.replay.simulated import spec
from blkreel.replay.simulated.fitted import (
    FITTED,
    FittedReads,
    ReadsInFlight,
    limit_of_depth,
    limit_of_fit,
    many_writes,
)
from blkreel.replay.simulated.spec import PREFIX, SimulatedDrive
from blkreel.traces.format.metadata_types import (
    COARSE_CLOCK_NS,
    DriveAgreement,
    FittedAccount,
    Run,
    ShareCertificate,
    clock_step_ns,
)
from blkreel.traces.format.trace import Trace
from blkreel.traces.samples import called

from .fit import fit_drives
from .measured_run import MeasuredRun, repeated_load_time, simulated_latencies
from .model import FittedModel

_P99 = (99, 100)
_DECIDED = 1.25  # highest over lowest prediction up to which a slowdown is stated
_UNUSED_QUEUE = QueueModel((1.0,) * 5, (0.0, 0.0), 1)  # completions are given


@dataclass(frozen=True)
class Prediction:
    """load_time_ns: at dependent pace, None without known dependencies. read_p99_ns: None without reads, and
    of few reads the latency of single ones.

    added_by_drive_ns: the load time without that on a drive without latency. pace: of the simulated replay. limits:
    what the trace does not tell about this drive, as in the verdict on a run. withheld: keys of the metrics that these
    limits forbid to use.
    """

    pace: str
    load_time_ns: int | None
    added_by_drive_ns: int | None
    read_p99_ns: int | None
    reads: int
    limits: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True)
class PredictionError:
    """Simulated over measured - 1 for one run; None where it could not be compared. run: its directory.

    """

    run: str
    load_time: float | None
    read_p99: float
    slowdown: "PredictedSlowdown | None" = None

    @property
    def slowdown_by_writes(self) -> float | None:
        """None if the fitted runs leave the slowdown open."""
        of = self.slowdown
        return of.predicted / of.measured - 1 if of and of.is_decided else None


@dataclass(frozen=True)
class PredictedSlowdown:
    """Load time beside the background of a run / alone. low, high: of all models that explain the fitted runs as well
    as the one that predicted it."""

    predicted: float
    low: float
    high: float
    measured: float

    @property
    def is_decided(self) -> bool:
        return self.high <= self.low * _DECIDED


@dataclass(frozen=True)
class CheckedErrors:
    """held_out: whether each run was predicted by a model fitted to runs of other traces only."""

    runs: tuple[PredictionError, ...]
    held_out: bool

    def largest(self) -> dict[str, float]:
        """The largest absolute error of each metric, without those that could not be compared."""
        of: dict[str, list[float | None]] = {"load_time": [run.load_time for run in self.runs],
                                             "read_p99": [run.read_p99 for run in self.runs],
                                             "slowdown_by_writes": [run.slowdown_by_writes for run in self.runs]}
        sizes = {key: [abs(error) for error in errors if error is not None] for key, errors in of.items()}
        return {key: max(errors) for key, errors in sizes.items() if errors}


def predict(trace: Trace, drive: SimulatedDrive, device: int | None, progress: Progress,
            compute: str | None = None) -> Prediction:
    """Simulate the replay of the trace: at dependent pace if it knows what its I/Os waited for, else at its times.

    compute: `x4` divides computing times. Raises TraceError, UsageError or BlkreelError as plan_trace().
    """
    resolution_ns = clock_step_ns(trace.metadata)
    if resolution_ns >= COARSE_CLOCK_NS:
        raise UsageError(f"no prediction for {called(trace.path)}: its submit times have a resolution of "
                         f"{format_ns(resolution_ns)}, too coarse to repeat them",
                         "import it from a source with a finer clock, or state a finer one: "
                         "blkreel import --clock-resolution 1us")
    target = find_target(drive.spec)
    pace = DEPENDENT if is_observed(trace) else ORIGINAL
    if compute is not None:
        pace = with_compute(pace, compute)
    plan = plan_trace(trace, target, pace=pace, idle=ALL_IDLE, prefill=False, device=device)
    span, metrics, counts, written_bytes = RunSpan(finds_late_end=True), QueueMetrics(), PlannedCounts(), 0
    fitted = FittedReads(drive.fitted) if drive.fitted else None

    def take(rows: Batch) -> None:
        nonlocal written_bytes
        if fitted:
            fitted.add(rows, rows)
        written_bytes += int(rows["length_bytes"][rows["op"] == WRITE].sum())
        span.add(rows)
        order = np.argsort(rows["submit_ns"], kind="stable")
        submit_ns, op, length_bytes, complete_ns = (
            rows[name][order] for name in ("submit_ns", "op", "length_bytes", "complete_ns"))
        none_ns = np.zeros(len(op), np.int64)
        metrics.add(_UNUSED_QUEUE, Ios(submit_ns, op, length_bytes, none_ns, none_ns - 1, none_ns == 0), complete_ns)

    if not simulate(plan, drive, take, progress, "predicting", counts=counts):
        raise TraceError(f"{called(trace.path)}: its replay cannot be simulated",
                         f"check it: blkreel check {called(trace.path)}")
    dependent = plan.observed
    least = zero_latency(plan, plan.source_sha256(), progress) if dependent else None
    run = Run.of({"run": {"pace": {**plan.pace_account(counts), **counts.by_clock(span.late_end)},
                          "source": plan.source(), "wall_ns": span.wall_ns, "idle": plan.idle_account()}})
    load_time_ns = counts.load_time_ns(span)
    return Prediction(plan.pace.name, load_time_ns if dependent else None,
                      load_time_ns - least["load_time_ns"] if least else None,
                      metrics.percentile_ns(READ, *_P99) if metrics.count(READ) else None, metrics.count(READ),
                      (*(limit["text"] for limit in of_dependencies(run)),
                       *(_not_fitted(fitted.account(), written_bytes) if fitted else ())),
                      withheld_of_load_time(run) if dependent else ())


def _not_fitted(fitted: FittedAccount, written_bytes: int) -> Iterator[str]:
    if limit := limit_of_depth(fitted):
        yield limit
    if (limit := limit_of_fit(fitted, written_bytes)) and many_writes(fitted["own_reads"], fitted["own_writes"]):
        yield f"{limit}; the {fitted['own_writes']:,} writes of the trace make its load time and read p99 uncertain"


def checked(runs: Sequence[MeasuredRun], fitted: Sequence[FittedModel], progress: Progress) -> CheckedErrors:
    """Predict each run by models of the runs of other traces; with runs of one trace only, by those fitted to all."""
    workloads = {run.workload for run in runs}
    held_out = len(workloads) > 1
    errors = []
    for workload in sorted(workloads):
        models = (fit_drives([run for run in runs if run.workload != workload], progress) if held_out else fitted)
        errors += [error_of(run, [model.drive() for model in models], progress) for run in runs
                   if run.workload == workload]
    return CheckedErrors(tuple(errors), held_out)


def error_of(run: MeasuredRun, drives: Sequence[SimulatedDrive], progress: Progress) -> PredictionError:
    """How far the first drive is off for a run. Raises TraceError if its I/Os cannot be simulated.

    drives: that explain the fitted runs equally well.
    """
    is_read = run.op == READ
    p99_ns = [float(np.quantile(latency_ns[is_read], 0.99)) for latency_ns in (
        simulated_latencies(run, drives[0], progress), run.latency_ns)]
    measured_ns, predicted_ns, slowdown = run.load_time_ns, None, None
    if measured_ns and (plan := run.plan):
        predicted_ns = repeated_load_time(run, plan, drives[0], progress)
        measured = run.account.baseline.slowdown.load_time if run.has_background and run.account.baseline else None
        if measured and run.plan_alone:
            predicted = [repeated_load_time(run, plan, drive, progress)
                         / max(repeated_load_time(run, run.plan_alone, drive, progress), 1) for drive in drives]
            slowdown = PredictedSlowdown(predicted[0], min(predicted), max(predicted), measured)
    return PredictionError(str(run.trace.path.parent),
                           predicted_ns / measured_ns - 1 if predicted_ns and measured_ns else None,
                           p99_ns[0] / p99_ns[1] - 1, slowdown)


def file_text(runs: Sequence[MeasuredRun], words: Mapping[str, str], drive: Mapping[str, Any],
              errors: CheckedErrors, version: str) -> str:
    """The TOML file of a fitted drive, for `--on nil:FILE.toml` and `blkreel predict`."""
    name = drive.get("model") or drive.get("name") or "drive"
    facts: dict[str, Any] = {"drive": str(name), "firmware": str(drive.get("firmware") or ""),
                             "runs": len(runs), "traces": len({run.workload for run in runs}),
                             "held_out": errors.held_out, "version": version,
                             "reads_in_flight": max(map(_in_flight, runs)), **_reads_beside(runs, "cache" in words),
                             **{f"{key}_error": round(value, 4) for key, value in errors.largest().items()}}
    if left_open := sum(run.slowdown is not None and not run.slowdown.is_decided for run in errors.runs):
        facts["slowdown_by_writes_open"] = left_open
    lines = ["# A simulated drive, fitted to runs of a real one. Replay on it: --on nil:THIS_FILE.toml",
             f"size = {_toml(str(drive['size_bytes']))}",
             *(f"{key} = {_toml(word)}" for key, word in words.items()), "",
             "# *_error: the largest error of a prediction, as a share. held_out: of traces that were not fitted.",
             "# reads_in_flight: of nearly all reads of the runs; a much deeper queue is not fitted.",
             "# reads_*_bytes: sizes of the reads beside writes. written_bytes: the most that a run wrote.",
             "# *_open: runs whose slowdown the runs leave open.",
             f"[{FITTED}]", *(f"{key} = {_toml(value)}" for key, value in facts.items())]
    return "\n".join(lines) + "\n"


def _in_flight(run: MeasuredRun) -> int:
    submit_ns, complete_ns = run.submit_ns[run.op == READ], (run.submit_ns + run.latency_ns)[run.op == READ]
    order = np.argsort(complete_ns, kind="stable")
    return int(np.quantile(ReadsInFlight().of(submit_ns[order], complete_ns[order]), 0.99, method="nearest"))


def _reads_beside(runs: Sequence[MeasuredRun], has_cache: bool) -> dict[str, int]:
    """Sizes of the reads of runs with many writes, without the least and the largest 1 %. What a run wrote, if no cache
    was full then."""
    sizes = [run.length_bytes[run.op == READ] for run in runs if run.has_contention]
    if not sizes:
        return {}
    least, largest = np.quantile(np.concatenate(sizes), (0.01, 0.99), method="nearest")
    written_bytes = max(int(run.length_bytes[run.op == WRITE].sum()) for run in runs)
    return {"reads_from_bytes": int(least), "reads_to_bytes": int(largest),
            **({} if has_cache else {"written_bytes": written_bytes})}


def _toml(value: str | bool | int | float) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in escaped) + '"'
    return str(value)


def drive_file(path: Path) -> str:
    """The name of the target that the file describes. Raises UsageError for a file that no target can be named by."""
    for wrong, why in ((path.suffix != ".toml", "is not the file of a drive"), (not path.exists(), "does not exist")):
        if wrong:
            raise UsageError(f"{path} {why}", "fit one: blkreel model-drive RUN... -o DRIVE.toml")
    return f"{PREFIX}{path}"


def certify(original: Trace, shared: Trace, progress: Progress) -> ShareCertificate:
    """Errors of a shared trace against its original: load time and read p99 of replays on the typical simulated drives,
    which have the same result on each machine. Raises UsageError if the trace has several drives, or neither reads nor
    a load time.
    """
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
