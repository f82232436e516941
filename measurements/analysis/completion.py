"""Time of one completion: bash, zsh and fish, with the stored table, and the time of the first one, which builds it.

    .venv/bin/python -m measurements.analysis.completion [--repeat 11]

Each repetition is one process of the command, as the shell starts it. `python` starts the interpreter and imports
click alone, in turn with the others: no command that uses click is faster.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measurements.lab import machine

WANTED_S = 0.3
COMMAND = Path(sys.executable).with_name("blkreel")
LINES = ("blkreel re", "blkreel replay --pa", "blkreel report x --figure read_p9")


def seconds(arguments, environment):
    begin_s = time.monotonic()
    subprocess.run(arguments, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begin_s


def environment(shell, line, cache):
    # fish passes the word at the cursor, the others its number.
    words = line.split()
    at = words[-1] if shell == "fish" else str(len(words) - 1)
    return {**os.environ, "XDG_CACHE_HOME": cache, "_BLKREEL_COMPLETE": f"{shell}_complete", "COMP_WORDS": line,
            "COMP_CWORD": at}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=11)
    repeat = parser.parse_args().repeat
    print(machine())
    with tempfile.TemporaryDirectory() as cache:
        cases = {f"{shell}: {line}": ([COMMAND], environment(shell, line, cache))
                 for shell in ("bash", "zsh", "fish") for line in LINES}
        cases["python: import click"] = ([sys.executable, "-c", "import click"], dict(os.environ))
        first_s = seconds([COMMAND], environment("bash", LINES[-1], cache))
        times = {name: [] for name in cases}
        for _ in range(repeat):
            for name, case in cases.items():
                times[name].append(seconds(*case))
    print(f"first completion, without a table: {first_s:.2f} s")
    print(f"{'median':>8} {'smallest':>8} {'largest':>8}  n={repeat}, goal {WANTED_S} s")
    for name, values in times.items():
        print(f"{statistics.median(values):7.3f}s {min(values):7.3f}s {max(values):7.3f}s  {name}")


if __name__ == "__main__":
    main()
