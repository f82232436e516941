"""The cost of the replay helper's confinement: an I/O of this build and of another one, such as one from before it.

    .venv/bin/python -m measurements.replay.confinement --baseline HELPER [--ios 200000] [--pairs 15] [--depth 1]

4 KiB random reads of a file in memory, as fast as they complete. The two helpers alternate. For each pair the time of
an I/O of the issuing thread on the CPU (which other load disturbs less) and on the clock is given as a difference.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np

from blkreel.replay.drive.claim import held
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine import engine
from measurements.lab import machine

BLOCK_BYTES, FILE_BYTES = 4096, 64 << 20


def issue(helper, file, ios, depth):
    """CPU time of the issuing thread and elapsed time, in ns for each I/O."""
    engine.HELPER = helper
    zeros = np.zeros(ios, "i8")
    offset_bytes = np.random.default_rng(1).integers(0, FILE_BYTES // BLOCK_BYTES, ios) * BLOCK_BYTES
    plan = {"due_ns": zeros - 1, "offset_bytes": offset_bytes, "length_bytes": zeros + BLOCK_BYTES, "op": zeros,
            "flags": zeros, "stream": zeros, "burst": zeros, "source_row": np.arange(ios)}
    with held(find_target(file)) as claim:
        totals = engine.run_engine(engine.EngineOptions(claims=[claim]), [engine.Lane([plan], depth)],
                                   lambda rows: None, lambda note: None)
    if totals["error_ops"] or totals["issued_ops"] != ios:
        raise SystemExit(f"the run is incomplete: {totals}")
    return totals["stall_monitor"]["ran_ns"] / ios, totals["wall_ns"] / ios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baseline", type=Path, required=True)
    parser.add_argument("--ios", type=int, default=200_000)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--depth", type=int, default=1)
    options = parser.parse_args()
    print(machine())
    current = engine.HELPER
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(bytes(FILE_BYTES))
        file.flush()
        pairs = []
        for number in range(options.pairs):
            order = (options.baseline, current) if number % 2 else (current, options.baseline)
            measured = {helper: issue(helper, Path(file.name), options.ios, options.depth) for helper in order}
            pairs.append((*measured[options.baseline], *measured[current]))
    for place, name in enumerate(("on the CPU", "elapsed")):
        before, after = ([pair[place + shift] for pair in pairs] for shift in (0, 2))
        low, middle, high = statistics.quantiles([b - a for a, b in zip(before, after, strict=True)], n=4)
        print(f"{name}: {statistics.median(before):.0f} ns for each I/O of the baseline, "
              f"{statistics.median(after):.0f} ns of this build; difference of a pair: median {middle:+.0f} ns, "
              f"quartiles {low:+.0f} and {high:+.0f} ns")


if __name__ == "__main__":
    main()
