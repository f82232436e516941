"""How much delays of this host changed the metrics of a run (docs/method.md, "Effect of the host").

Two estimates for each metric. Schedule effect: the due times and the times of issue both arrive at one simple queue
that is fitted to the run. Best case: late I/Os count from their submission, and completions that were seen during a
stall of the issuing thread count as of its beginning. The larger one counts, for medians their sum.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from blkreel.common.errors import UsageError
from blkreel.common.files.typed_document import document_of
from blkreel.traces.format import metadata_types
from blkreel.traces.format.metadata_types import MetricEffect
from blkreel.traces.format.schema import FLAGS, OPS, WRITE_CODES

from .gaps import WINDOW_NS, InSubmitOrder, SubmitTimes
from .queue_metrics import READ, WRITE, Ios, QueueMetrics, QueueModel, first_guess, fit

# I/Os that the queue is fitted to: chunks from all over a batch.
_CHUNK_ROWS, _CHUNKS = 4096, 4
_DIRECTIONS = {"read": READ, "write": WRITE}
_PERCENTILES = {"p50": (1, 2), "p90": (9, 10), "p99": (99, 100), "p99_9": (999, 1000), "p99_99": (9999, 10000)}
_LARGEST = 10.0  # effects are not known better than that

# Metrics that a run is judged by, by kind of pace. The others are shown with their effect.
LOAD_TIME = ("load_time", "added_by_drive")
OPEN = ("read_wait", "read_throughput", "read_response_p99")
OPEN_WITHOUT_READS = ("write_wait", "write_throughput", "write_response_p99")
SATURATING = ("throughput", "iops")


@dataclass(frozen=True)
class EffectLimits:
    """Shares of a metric. Up to `accepted` an effect is ignored; above `withheld` the metric is not used."""

    accepted: float = 0.02
    withheld: float = 0.10

    def level(self, effect: float) -> str:
        """`accepted`, `qualified` or `withheld`."""
        size = abs(effect)
        return "accepted" if size <= self.accepted else "qualified" if size <= self.withheld else "withheld"

    def __str__(self) -> str:
        return f"{self.accepted * 100:g}%:{self.withheld * 100:g}%"


def parse_limits(text: str) -> EffectLimits:
    """`2%:10%`. Raises UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)%:(\d+(?:\.\d+)?)%", text.replace(" ", ""))
    limits = EffectLimits(float(match[1]) / 100, float(match[2]) / 100) if match else None
    if limits is None or limits.accepted > limits.withheld:
        raise UsageError(f"invalid --effect-limits: {text!r}", "write two rising percentages like 2%:10%")
    return limits


class HostEffect:
    """Takes the engine's records as they come, in bounded memory.

    dependent, saturating: whether the plan has streams of these paces; open_loop: streams with their own times.
    clocked: False on a virtual clock, on which the host delays nothing.
    """

    def __init__(self, limits: EffectLimits, *, dependent: bool, open_loop: bool, saturating: bool,
                 clocked: bool = True):
        self._limits = limits
        self._dependent, self._open_loop, self._saturating = dependent, open_loop, saturating
        self._clocked = clocked
        self._order = InSubmitOrder()
        self._last_complete_ns = 0
        self._batches = 0
        self._model: QueueModel | None = None
        self._modeled_issued, self._modeled_due = QueueMetrics(), QueueMetrics()
        self._measured, self._best_case = QueueMetrics(), QueueMetrics()
        self._stalled_ns: int | None = None

    def take(self, rows: Mapping[str, np.ndarray]) -> None:
        """Records, in the order of completion."""
        if not self._clocked or not len(rows["submit_ns"]):
            return
        done = rows["complete_ns"] >= rows["submit_ns"]
        rows = rows if done.all() else {name: column[done] for name, column in rows.items()}
        if len(rows["submit_ns"]):
            self._last_complete_ns = max(self._last_complete_ns, int(rows["complete_ns"].max()))
            op = np.where(np.isin(rows["op"], WRITE_CODES), np.int8(WRITE), rows["op"])
            self._add(self._order.take(rows["submit_ns"], rows["due_ns"], rows["complete_ns"],
                                       self._last_complete_ns - WINDOW_NS, op, rows["length_bytes"],
                                       rows["flags"], rows["host_delay_ns"], rows["stall_ns"]))

    def end(self, totals: Mapping[str, Any]) -> None:
        """totals: the engine's end block."""
        self._add(self._order.drain())
        causes = (totals.get("stall_monitor") or {}).get("causes") or {}
        threads = max(1, totals.get("threads") or 1)
        self._stalled_ns = sum(cause["total_ns"] for cause in causes.values()) // threads

    def account(self, wall_ns: int, zero_latency_ns: int | None = None) -> dict[str, Any] | None:
        """A document of metadata_types.HostEffect. None before the end, for a run without I/O, and on a virtual clock.

        zero_latency_ns: load time of the plan on a drive without latency, None if unknown.
        """
        if self._stalled_ns is None or not self._clocked:
            return None
        metrics = dict(self._effects(zero_latency_ns))
        if self._saturating and wall_ns:
            lost = _relative(wall_ns, max(wall_ns - self._stalled_ns, 1))
            for key in SATURATING:
                metrics[key] = self._judged(0.0, -lost / (1 + lost))
        if not metrics:
            return None
        headline = [*(LOAD_TIME if self._dependent else ()), *(SATURATING if self._saturating else ())]
        if self._open_loop:
            headline += OPEN if self._measured.count(READ) else OPEN_WITHOUT_READS
        model = self._model
        return document_of(metadata_types.HostEffect(
            limits={"accepted": self._limits.accepted, "withheld": self._limits.withheld}, metrics=metrics,
            headline=[key for key in headline if key in metrics],
            queue=None if model is None else {
                "channels": model.channels,
                "latency_ns": {name: round(model.latency_ns[code]) for name, code in OPS.items()},
                "bandwidth_mb_s": {name: round(1e3 / model.ns_per_byte[code], 1)
                                   for name, code in _DIRECTIONS.items()},
                "misfit": round(model.misfit, 3)}))

    def _add(self, times: SubmitTimes | None) -> None:
        if times is None or not len(times.submit_ns):
            return
        op, length_bytes, flags, host_delay_ns, stall_ns = times.other_columns
        submit_ns, complete_ns = times.submit_ns, times.complete_ns
        model = self._fitted(submit_ns, complete_ns - stall_ns, op, length_bytes)
        timed = times.due_ns >= 0
        late_ns = np.where(timed, np.maximum(submit_ns - times.due_ns, 0), -1)
        waited_ns = np.where(timed & (flags & FLAGS["queue_full"] != 0), late_ns, 0)
        drive_late_ns = np.where(timed, waited_ns, -1)
        workload = flags & FLAGS["own"] != 0
        issued = Ios(submit_ns, op, length_bytes, waited_ns, late_ns, workload)
        self._modeled_issued.add(model, issued)
        self._measured.add(model, issued, complete_ns)
        # A completion was at least one service time after its submission.
        earliest_ns = submit_ns + np.minimum(model.service_ns(op, length_bytes), complete_ns - submit_ns)
        shift_ns = host_delay_ns if self._dependent else np.zeros_like(host_delay_ns)
        self._best_case.add(model, Ios(submit_ns - shift_ns, op, length_bytes, waited_ns, drive_late_ns, workload),
                            np.maximum(complete_ns - stall_ns, earliest_ns) - shift_ns)
        undelayed_ns = submit_ns - host_delay_ns
        order = np.argsort(undelayed_ns, kind="stable")
        self._modeled_due.add(model, Ios(*(column[order] for column in (
            undelayed_ns, op, length_bytes, waited_ns, drive_late_ns, workload))))

    def _fitted(self, submit_ns: np.ndarray, complete_ns: np.ndarray, op: np.ndarray,
                length_bytes: np.ndarray) -> QueueModel:
        """The queue of this batch. It is fitted again at the batches 1, 2, 4, 8, ..."""
        self._batches += 1
        if self._model is None or self._batches & (self._batches - 1) == 0:
            count = min(_CHUNKS, -(-len(op) // _CHUNK_ROWS))
            starts = np.linspace(0, max(0, len(op) - _CHUNK_ROWS), count).astype(np.int64)
            rows = np.concatenate([np.arange(start, min(start + _CHUNK_ROWS, len(op))) for start in starts])
            latency_ns = np.maximum(complete_ns - submit_ns, 0)[rows]
            start = self._model or first_guess(op[rows], length_bytes[rows], latency_ns)
            self._model = fit(start, submit_ns[rows], op[rows], length_bytes[rows], latency_ns, _CHUNK_ROWS)
        return self._model

    def _effects(self, zero_latency_ns: int | None) -> Sequence[tuple[str, MetricEffect]]:
        effects = []
        for name, direction in _DIRECTIONS.items():
            if not self._measured.count(direction):
                continue
            wait = self._effect(lambda of, direction=direction: of.wait_ns(direction))
            service = self._effect(lambda of, direction=direction: of.service_time_ns(direction))
            effects += [(f"{name}_wait", wait), (f"{name}_throughput", self._inverse(wait)),
                        (f"{name}_service_time", service), (f"{name}_latency_mean", service)]
            for response in (False, True):
                count = self._measured.count(direction, response)
                for key, (numerator, denominator) in _PERCENTILES.items():
                    if count * (denominator - numerator) < denominator:
                        continue
                    effects.append((f"{name}_{'response_' if response else ''}{key}", self._effect(
                        lambda of, arguments=(direction, numerator, denominator, response):
                        of.percentile_ns(*arguments), adds_up=key == "p50")))
        if self._dependent and self._measured.load_time_ns:
            effects.append(("load_time", self._effect(lambda of: of.load_time_ns)))
            if zero_latency_ns is not None:
                effects.append(("added_by_drive", self._effect(lambda of: of.load_time_ns - zero_latency_ns)))
        return effects

    def _effect(self, value_ns: Any, adds_up: bool = False) -> MetricEffect:
        difference_ns = value_ns(self._modeled_issued) - value_ns(self._modeled_due)
        measured_ns = value_ns(self._measured)
        # Where the queue is much faster than the drive, its difference is compared with the drive's value.
        without_ns = max(value_ns(self._modeled_due), measured_ns - difference_ns)
        schedule = _relative(without_ns + difference_ns, without_ns)
        best_case = _relative(measured_ns, value_ns(self._best_case))
        return self._judged(schedule, best_case, adds_up)

    def _judged(self, schedule: float, best_case: float, adds_up: bool = False) -> MetricEffect:
        effect = max(schedule, best_case, key=abs)
        if adds_up:
            effect = math.copysign(abs(schedule) + abs(best_case), effect)
        return {"effect": round(effect, 5), "schedule": round(schedule, 5), "best_case": round(best_case, 5),
                "level": self._limits.level(effect)}

    def _inverse(self, of: MetricEffect) -> MetricEffect:
        """The effect on 1 / metric."""
        return self._judged(-of["schedule"] / (1 + of["schedule"]), -of["best_case"] / (1 + of["best_case"]))


def _relative(with_delays: float, without: float) -> float:
    if with_delays == without:
        return 0.0
    return min(_LARGEST, max(with_delays, 1) / without - 1) if without > 0 else _LARGEST
