"""The issue rule of the engine for one lane: a test oracle for plans."""

from fractions import Fraction

import numpy as np
from columns import in_batches, joined

COMPLETIONS = ("after_1", "after_2", "after_3", "after_4")


def issued(plan: dict, latency_ns, processors: int = 0) -> list[int]:
    """Submission time of each row of a lane with dependencies, for these latencies (-1: no completion).

    processors: that computing rows share equally, from event to event in exact fractions; 0: as many as they need.
    """
    plan = {name: np.asarray(values).tolist() for name, values in plan.items()}
    count = len(plan["delay_ns"])
    latency_ns = np.maximum(latency_ns, 0).tolist()
    parents = [[row - plan[name][row] for name in COMPLETIONS if plan[name][row]] for row in range(count)]
    compute_cpu_ns, delay_cpu_ns = (plan.get(name, [0] * count) for name in ("compute_cpu_ns", "delay_cpu_ns"))
    submit_ns, complete_ns = [None] * count, [None] * count
    computed_ns = [None] * count  # the end of the computing after the submission that the row is behind
    computing = {}  # row: processor time left
    due_at = [None] * count  # the end of the computing after the delay
    at = Fraction(0)

    def waits(row):
        """Until when the row waits for others; None: that is not known yet."""
        times = [complete_ns[parent] for parent in parents[row]] + ([computed_ns[row]] if plan["behind"][row] else [])
        return None if None in times else max(times, default=None)

    def settle():
        """All that follows from the times known now: rows wait for earlier ones only. Returns the times at which
        computing begins."""
        begins = {}
        for row in range(count):
            back = plan["behind"][row]
            if back and computed_ns[row] is None and submit_ns[row - back] is not None and row not in computing:
                if compute_cpu_ns[row]:
                    begins[row] = submit_ns[row - back], compute_cpu_ns[row]
                else:
                    computed_ns[row] = submit_ns[row - back] + plan["compute_ns"][row]
            if submit_ns[row] is not None or row in computing:
                continue
            due_ns = plan["due_ns"][row]
            if back or parents[row]:
                met_ns = waits(row)
                if met_ns is None:
                    continue
                due_ns = met_ns + plan["delay_ns"][row]
                if delay_cpu_ns[row]:
                    if due_at[row] is None:
                        begins[row] = due_ns, delay_cpu_ns[row]
                        continue
                    due_ns = due_at[row]
            submit_ns[row], complete_ns[row] = due_ns, due_ns + latency_ns[row]
        return begins

    while True:
        begins = {row: begin for row, begin in settle().items() if row not in computing}
        share = min(Fraction(1), Fraction(processors or count, max(len(computing), 1)))
        ends = {row: at + left / share for row, left in computing.items()}
        if not begins and not ends:
            return [round(time) for time in submit_ns]
        next_at = min([max(at, begin) for begin, _ in begins.values()] + list(ends.values()))
        computing = {row: left - (next_at - at) * share for row, left in computing.items()}
        at = next_at
        for row in [row for row, left in computing.items() if left <= 0]:
            del computing[row]
            if plan["behind"][row] and computed_ns[row] is None:
                computed_ns[row] = at + plan["compute_ns"][row]
            else:
                due_at[row] = at
        computing |= {row: Fraction(cpu) for row, (begin, cpu) in begins.items() if begin <= at}


def planned(dependencies, io, sizes=(None,), kept=None):
    """The columns of a lane, made of batches of these sizes. kept: the rows of the trace that are in the lane."""
    kept = np.arange(len(io["submit_ns"])) if kept is None else np.asarray(kept)
    return joined(dependencies.columns({name: values[rows] for name, values in io.items()}, rows, io["submit_ns"][rows])
                  for rows in in_batches(kept, sizes)) | {"due_ns": io["submit_ns"][kept]}


def waited_for(plan, row):
    """The rows whose completion a row waits for."""
    return {row - int(plan[name][row]) for name in COMPLETIONS if plan[name][row]}
