"""How far a run was what the plan wanted, and what kept it from that (docs/method.md, "Certificate")."""

import threading
from collections.abc import Iterable, Iterator

import numpy as np

from blkreel.traces.units import format_ns

from . import in_flight
from .arrivals import WINDOW_NS, Arrivals, InSubmitOrder
from .host_counters import HostCounters, read_counters
from .in_flight import InFlight

# What the engine's watch of its issuing threads tells them by, in words.
CAUSES = {
    "stopped": "the process was stopped",
    "preempted": "other work had its processor",
    "records": "the records were not taken away in time",
    "plan": "the plan did not come in time",
    "paging": "memory had to be read back from a drive",
    "machine": "all stood still (a hypervisor or firmware took the processor, or the process was frozen)",
    "blocked": "the kernel held the call that issues",
    "kernel": "the kernel had its processor (the call itself, interrupts, or a hypervisor)",
    "wakeup": "its sleep ended late (power saving, or a hypervisor)",
    "overload": "more was due than it can issue",
}


class Certificate:
    """Watches one run: its plan as it is fed, its records as they come, the machine before and after.

    Only runs with deadlines have their arrivals followed one by one: at a fixed depth there is nothing to hold them
    against, and there are many more.
    """

    def __init__(self, timed: bool):
        self._timed = timed
        self._order, self._arrivals = InSubmitOrder(), Arrivals()
        self._replayed, self._captured = InFlight(), InFlight()
        # Each lane is read by a thread of its own, and some are ahead of others.
        self._lock = threading.Lock()
        self._captured_order = InSubmitOrder()
        self._captured_until_ns: dict[int, int] = {}
        self._last_complete_ns = 0
        self._before: HostCounters | None = None
        self._host: dict | None = None

    def begin(self) -> None:
        self._before = read_counters()

    def watch(self, batches: Iterable[dict[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
        """A lane's batches, added up as they pass; they need captured_ns and captured_latency_ns to be told of.

        Called for all lanes before the first batch of any is taken.
        """
        lane = len(self._captured_until_ns)
        self._captured_until_ns[lane] = np.iinfo(np.int64).min
        return self._watched(lane, batches)

    def _watched(self, lane, batches):
        for batch in batches:
            if self._timed and "captured_latency_ns" in batch and len(batch["captured_ns"]):
                start_ns = np.asarray(batch["captured_ns"], np.int64)
                with self._lock:
                    self._captured_until_ns[lane] = int(start_ns[-1])
                    self._add_captured(self._captured_order.take(
                        start_ns, start_ns, start_ns + batch["captured_latency_ns"],
                        min(self._captured_until_ns.values())))
            yield batch
        with self._lock:
            self._captured_until_ns[lane] = np.iinfo(np.int64).max

    def take(self, rows: dict[str, np.ndarray]) -> None:
        """Records, in the order of completion."""
        if self._timed and len(rows["submit_ns"]):
            self._last_complete_ns = max(self._last_complete_ns, int(rows["complete_ns"].max()))
            self._add(self._order.take(rows["submit_ns"], rows["due_ns"], rows["complete_ns"],
                                       self._last_complete_ns - WINDOW_NS))

    def end(self, totals: dict) -> None:
        """The run is over; totals: the engine's end block."""
        self._add(self._order.rest())
        with self._lock:
            self._add_captured(self._captured_order.rest())
        watch = totals.get("watch")
        if watch is not None and self._before is not None:
            causes = {name: {**sum_of, "words": CAUSES.get(name, name)} for name, sum_of in watch["causes"].items()}
            self._host = {**watch, "causes": causes, **read_counters().since(self._before)}

    def account(self) -> dict:
        """As of now. host: None until the end."""
        with self._lock:
            captured, replayed = self._captured.account(), self._replayed.account()
            both = captured and replayed
            apart = round(in_flight.distance(self._captured, self._replayed), 4) if both else None
        return {
            "arrivals": self._arrivals.account(),
            "in_flight": {"captured": captured, "replayed": replayed,
                          "ks": apart}
            if captured or replayed else None,
            "misplaced_ops": self._order.misplaced,
            "host": self._host,
        }

    def _add_captured(self, settled):
        if settled is not None:
            self._captured.add(settled[0], settled[2])

    def _add(self, settled):
        if settled is not None:
            submit_ns, due_ns, complete_ns = settled
            self._arrivals.add(submit_ns, due_ns)
            self._replayed.add(submit_ns, complete_ns)


def causes_text(run: dict) -> str:
    """What made I/Os late, the most first: `other work had its processor (12 times, 34.0 ms in all)`; "" unknown."""
    named = sorted(causes_of(run).items(), key=lambda item: (item[1]["late_ops"], item[1]["total_ns"]), reverse=True)
    said = []
    for name, sum_of in named[:4]:
        if not sum_of["late_ops"]:
            continue
        how = f", {format_ns(sum_of['total_ns'])} in all" if sum_of["total_ns"] else ""
        said.append(f"{CAUSES.get(name, name)} ({_times(sum_of['count'])}{how}; {sum_of['late_ops']:,} I/Os late)")
    return "; ".join(said)


def _times(count):
    return "once" if count == 1 else f"{count:,} times"


def causes_of(run: dict) -> dict[str, dict]:
    """name -> count, total_ns, longest_ns, late_ops, max_late_ns; empty where nobody watched."""
    host = (run.get("certificate") or {}).get("host") or {}
    return host.get("causes") or {}


def certificate_lines(run: dict) -> list[str]:
    """The certificate of a run as lines for a terminal."""
    told, lines = run.get("certificate") or {}, []
    if arrivals := told.get("arrivals"):
        planned, issued = arrivals["planned"], arrivals["issued"]
        lines.append(f"gaps between issues: median {format_ns(planned['p50_ns'])} planned, "
                     f"{format_ns(issued['p50_ns'])} issued; changed by {format_ns(arrivals['changed']['p50_ns'])} "
                     f"(median), {format_ns(arrivals['changed']['p99_ns'])} (99 %)")
    in_flight_told = told.get("in_flight") or {}
    if in_flight_told.get("captured") and in_flight_told.get("replayed"):
        lines.append(f"in flight while busy: {in_flight_told['captured']['mean']:.3g} on average as captured, "
                     f"{in_flight_told['replayed']['mean']:.3g} here")
    if told.get("host"):
        sums = sorted(causes_of(run).values(), key=lambda one: one["total_ns"], reverse=True)
        said = [f"{format_ns(one['total_ns'])} ({_times(one['count'])}) because {one['words']}" for one in sums[:3]]
        lines.append(f"held up: {'; '.join(said) or 'never for more than 100 us'}")
    return lines
