"""How near a run came to its plan, and what kept it from that (docs/method.md, "Certificate")."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from blkreel.common.units import format_ns
from blkreel.replay.plan.batch import issued_rows
from blkreel.replay.telemetry.sensors.host_counters import HostCounters, read_counters
from blkreel.traces.format import metadata_types
from blkreel.traces.format.metadata_types import StallCause

from .gaps import WINDOW_NS, Arrivals, InSubmitOrder, SubmitTimes

# The causes that the stall monitor of the issuing threads reports, in words.
CAUSES = {
    "stopped": "process stopped",
    "preempted": "preempted by another process",
    "records": "records not collected in time",
    "plan": "plan not delivered in time",
    "paging": "memory paged in from a drive",
    "machine": "CPU stolen by hypervisor or firmware",
    "blocked": "blocked in the kernel during submission",
    "kernel": "CPU in kernel or interrupts",
    "wakeup": "late wake-up",
    "overload": "more I/Os due than the thread can issue",
}


class Certificate:
    """Compares a run with its plan: rows of the plan as they are fed, records as they come, host counters.

    timed: whether the run has deadlines; at a fixed depth there is nothing to compare arrivals with.
    """

    def __init__(self, timed: bool):
        self._timed = timed
        self._order, self._arrivals = InSubmitOrder(), Arrivals()
        self._replayed, self._captured = InFlight(), InFlight()
        # Each lane is read by its own thread, and some are ahead of others.
        self._lock = threading.Lock()
        self._captured_order = InSubmitOrder()
        self._captured_until_ns: dict[int, int] = {}
        self._last_complete_ns = 0
        self._before: HostCounters | None = None
        self._host: dict[str, Any] | None = None

    def begin(self) -> None:
        """Count from now on. Called again when the run has started, so that its set-up does not count."""
        self._before = read_counters()

    def watch(self, batches: Iterable[dict[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
        """A lane's batches, added up as they pass. They count if they have captured_ns and captured_latency_ns.

        Call it for all lanes before the first batch of any lane is taken.
        """
        lane = len(self._captured_until_ns)
        self._captured_until_ns[lane] = np.iinfo(np.int64).min
        return self._add_lane(lane, batches)

    def _add_lane(self, lane: int, batches: Iterable[dict[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
        for batch in batches:
            planned = issued_rows(batch)
            if self._timed and "captured_latency_ns" in batch and len(planned["captured_ns"]):
                start_ns = np.asarray(planned["captured_ns"], np.int64)
                with self._lock:
                    self._captured_until_ns[lane] = int(start_ns[-1])
                    self._add_captured(self._captured_order.take(
                        start_ns, start_ns, start_ns + planned["captured_latency_ns"],
                        min(self._captured_until_ns.values())))
            yield batch
        with self._lock:
            self._captured_until_ns[lane] = np.iinfo(np.int64).max

    def take(self, rows: Mapping[str, np.ndarray]) -> None:
        """Records, in the order of completion."""
        if self._timed and len(rows["submit_ns"]):
            self._last_complete_ns = max(self._last_complete_ns, int(rows["complete_ns"].max()))
            self._add_replayed(self._order.take(rows["submit_ns"], rows["due_ns"], rows["complete_ns"],
                                                self._last_complete_ns - WINDOW_NS))

    def end(self, totals: Mapping[str, Any]) -> None:
        """totals: the engine's end block."""
        self._add_replayed(self._order.drain())
        with self._lock:
            self._add_captured(self._captured_order.drain())
        stalls = totals.get("stall_monitor")
        if stalls is not None and self._before is not None:
            causes = {name: {**cause, "words": CAUSES.get(name, name)} for name, cause in stalls["causes"].items()}
            self._host = {**stalls, "causes": causes, **read_counters().since(self._before)}

    def account(self) -> dict[str, Any]:
        """As metadata_types.Certificate. host: the totals of the stall monitor, and of HostCounters; None until the
        end."""
        with self._lock:
            captured, replayed = self._captured.account(), self._replayed.account()
            ks = round(distance(self._captured, self._replayed), 4) if captured and replayed else None
        return {
            "arrivals": self._arrivals.account(),
            "in_flight": {"captured": captured, "replayed": replayed, "ks": ks} if captured or replayed else None,
            "misplaced_ops": self._order.misplaced,
            "host": self._host,
        }

    def _add_captured(self, times: SubmitTimes | None) -> None:
        if times is not None:
            self._captured.add(times.submit_ns, times.complete_ns)

    def _add_replayed(self, times: SubmitTimes | None) -> None:
        if times is not None:
            self._arrivals.add(times.submit_ns, times.due_ns)
            self._replayed.add(times.submit_ns, times.complete_ns)


def certified(run: Mapping[str, Any]) -> dict[str, Any]:
    """The certificate with the other figures of a run's account that concern its times."""
    return {"lateness": run["lateness"], "drift_ns": run["drift_ns"], **run["certificate"],
            "altered_ops": sum(run["altered"].values()), "dropped_ops": sum(run["dropped"].values()),
            "underruns": run["underruns"], "record_stalls": run["record_stalls"]}


def main_cause(causes: Mapping[str, StallCause]) -> str:
    """What delayed I/Os for the longest time, or the issuing thread: `late wake-up (12 times, 34.0 ms)`."""
    name, cause = max(causes.items(), key=lambda item: (
        item[1]["late_ops"] * item[1]["total_ns"] / item[1]["count"], item[1]["total_ns"]))
    return f"{CAUSES.get(name, name)} ({times(cause['count'])}, {format_ns(cause['total_ns'])})"


def times(count: int) -> str:
    return "1 time" if count == 1 else f"{count:,} times"


def certificate_lines(certificate: metadata_types.Certificate) -> list[str]:
    """The certificate of a run as lines for a terminal."""
    lines = []
    if arrivals := certificate.arrivals:
        planned, issued, changed = arrivals["planned"], arrivals["issued"], arrivals["changed"]
        lines.append(f"gaps between submissions: median {format_ns(planned['p50_ns'])} planned, "
                     f"{format_ns(issued['p50_ns'])} issued; change of a gap: median {format_ns(changed['p50_ns'])}, "
                     f"p99 {format_ns(changed['p99_ns'])}")
    in_flight = certificate.in_flight
    if in_flight and (captured := in_flight["captured"]) and (replayed := in_flight["replayed"]):
        lines.append(f"mean I/Os in flight while busy: {captured['mean']:.3g} captured, "
                     f"{replayed['mean']:.3g} replayed")
    if certificate.host:
        causes = sorted(certificate.host.causes.values(), key=lambda cause: cause["total_ns"], reverse=True)
        texts = [f"{cause['words']} {format_ns(cause['total_ns'])} ({times(cause['count'])})" for cause in causes[:3]]
        lines.append(f"stalls of the issuing thread: {'; '.join(texts) or 'none above 100 µs'}")
    return lines


_DEEPEST = 1 << 16  # more count as so many


class InFlight:
    """Takes I/Os in the order of their submission.

    The distribution covers the time with at least one I/O in flight, so that removed idle time does not change it.
    """

    def __init__(self) -> None:
        self.time_ns = np.zeros(_DEEPEST + 1)
        self._depth = 0
        self._at_ns: int | None = None
        self._ends_ns = np.empty(0, np.int64)

    def add(self, start_ns: np.ndarray, end_ns: np.ndarray) -> None:
        """An end before the start means unknown: such an I/O is left out."""
        has_end = end_ns >= start_ns
        if not has_end.any():
            return
        start_ns, end_ns = start_ns[has_end], end_ns[has_end]
        if self._at_ns is None:
            self._at_ns = int(start_ns[0])
        ends_ns = np.concatenate([self._ends_ns, end_ns])
        until_ns = max(self._at_ns, int(start_ns[-1]))
        over = ends_ns <= until_ns
        self._pass(start_ns, ends_ns[over], until_ns)
        self._ends_ns = ends_ns[~over]

    def account(self) -> metadata_types.InFlight | None:
        """None if no I/O was in flight."""
        time_ns = self._time_ns()
        total_ns = time_ns.sum()
        if not total_ns:
            return None
        passed_ns = np.cumsum(time_ns)
        return {"mean": round(float((time_ns * np.arange(len(time_ns))).sum() / total_ns), 3),
                "p50": int(np.searchsorted(passed_ns, total_ns * 0.5)),
                "p99": int(np.searchsorted(passed_ns, total_ns * 0.99)),
                "max": int(np.flatnonzero(time_ns)[-1]), "busy_ns": int(total_ns)}

    def shares(self) -> np.ndarray:
        """Share of the busy time with at most n I/Os in flight, by n."""
        time_ns = self._time_ns()
        shares: np.ndarray = np.cumsum(time_ns) / max(time_ns.sum(), 1)
        return shares

    def _time_ns(self) -> np.ndarray:
        time_ns = self.time_ns.copy()
        for depth, span_ns in self._tail():
            time_ns[depth] += span_ns
        time_ns[0] = 0
        return time_ns

    def _tail(self) -> Iterator[tuple[int, int]]:
        """(depth, duration) from the last submission to the last end."""
        if not len(self._ends_ns):
            return
        ends_ns = np.sort(self._ends_ns)
        spans_ns = np.diff(np.concatenate([[self._at_ns], ends_ns]))
        for place, span_ns in enumerate(spans_ns):
            yield min(len(ends_ns) - place, _DEEPEST), span_ns

    def _pass(self, starts_ns: np.ndarray, ends_ns: np.ndarray, until_ns: int) -> None:
        """Add the time up to until_ns, with the I/Os that start and end until then."""
        assert self._at_ns is not None
        # Starts before ends of the same time: an I/O without duration must not make the depth negative.
        times_ns = np.maximum(np.concatenate([starts_ns, ends_ns]), self._at_ns)
        steps = np.concatenate([np.ones(len(starts_ns), np.int64), np.full(len(ends_ns), -1)])
        order = np.argsort(times_ns, kind="stable")
        depths = np.concatenate([[self._depth], self._depth + np.cumsum(steps[order])])
        spans_ns = np.diff(np.concatenate([[self._at_ns], times_ns[order], [until_ns]]))
        self.time_ns += np.bincount(np.clip(depths, 0, _DEEPEST), weights=spans_ns, minlength=len(self.time_ns))
        self._depth = int(depths[-1])
        self._at_ns = until_ns


def distance(a: InFlight, b: InFlight) -> float:
    """The Kolmogorov-Smirnov statistic of the two distributions."""
    return float(np.abs(a.shares() - b.shares()).max())
