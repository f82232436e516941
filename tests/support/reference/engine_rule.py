"""The issue rule of the engine for one lane, row by row: a test oracle for plans."""

COMPLETIONS = ("after_1", "after_2", "after_3", "after_4")


def issued(plan: dict, latency_ns) -> list[int]:
    """Submission time of each row of a lane with dependencies, for these latencies (-1: no completion)."""
    submit_ns, complete_ns = [], []
    for row in range(len(plan["delay_ns"])):
        waits = [complete_ns[row - plan[name][row]] for name in COMPLETIONS if plan[name][row]]
        if plan["behind"][row]:
            waits.append(submit_ns[row - plan["behind"][row]] + plan["compute_ns"][row])
        at = max(waits) + plan["delay_ns"][row] if waits else plan["due_ns"][row]
        assert at is not None
        submit_ns.append(int(at))
        complete_ns.append(int(at + max(latency_ns[row], 0)))
    return submit_ns
