"""The issue rule of the engine for one lane: a test oracle for plans."""

from fractions import Fraction

COMPLETIONS = ("after_1", "after_2", "after_3", "after_4")


def issued(plan: dict, latency_ns, processors: int = 0) -> list[int]:
    """Submission time of each row of a lane with dependencies, for these latencies (-1: no completion).

    processors: that computing rows share equally, from event to event in exact fractions; 0: as many as they need.
    """
    count = len(plan["delay_ns"])
    submit_ns, complete_ns = [None] * count, [None] * count
    computed_ns = [None] * count  # the end of the computing after the submission that the row is behind
    computing = {}  # row: processor time left
    due_at = [None] * count  # the end of the computing after the delay
    at = Fraction(0)

    def cpu_ns(name, row):
        return int(plan.get(name, [0] * count)[row])

    def waits(row):
        """Until when the row waits for others; None: that is not known yet."""
        times = [complete_ns[row - plan[name][row]] for name in COMPLETIONS if plan[name][row]]
        times += [computed_ns[row]] if plan["behind"][row] else []
        return None if None in times else max(times, default=None)

    def settle():
        """All that follows from the times known now, in any order. Returns the times at which computing begins."""
        begins = {}
        changed = True
        while changed:
            changed = False
            for row in range(count):
                back = plan["behind"][row]
                if back and computed_ns[row] is None and submit_ns[row - back] is not None and row not in computing:
                    if cpu_ns("compute_cpu_ns", row):
                        begins[row] = submit_ns[row - back], cpu_ns("compute_cpu_ns", row)
                    else:
                        computed_ns[row], changed = submit_ns[row - back] + plan["compute_ns"][row], True
                dependent = back or any(plan[name][row] for name in COMPLETIONS)
                met_ns = waits(row)
                if submit_ns[row] is not None or (dependent and met_ns is None) or row in computing:
                    continue
                due_ns = met_ns + int(plan["delay_ns"][row]) if dependent else plan["due_ns"][row]
                if dependent and cpu_ns("delay_cpu_ns", row):
                    if due_at[row] is None:
                        begins[row] = due_ns, cpu_ns("delay_cpu_ns", row)
                        continue
                    due_ns = due_at[row]
                submit_ns[row], complete_ns[row], changed = due_ns, due_ns + max(int(latency_ns[row]), 0), True
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
                computed_ns[row] = at + int(plan["compute_ns"][row])
            else:
                due_at[row] = at
        computing |= {row: Fraction(cpu) for row, (begin, cpu) in begins.items() if begin <= at}
