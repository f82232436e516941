"""Run the parts of the tests, all of them even if one fails, and print a summary. Exit code 1 if a part failed.

    python tests/run.py                        # lint, native, unit, kernel
    python tests/run.py lint unit              # only these
    python tests/run.py --all                  # also the guests
    python tests/run.py --lanes 1              # one part after the other

Four lanes run side by side; each takes the next part when it is free, so that none is left with two long parts. The
kernel tests mostly wait for drives, and a guest emulates on one processor. Each line of output then begins with the
name of its part. The output ends with the failed tests of all parts. Parts that still run after LIMIT_SECONDS are
ended: the output then shows their processes, and where each Python stands.
"""

import argparse
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TREE = Path(__file__).parents[1]
PYTEST = [sys.executable, "-m", "pytest"]
MAKE = ["make", "--no-print-directory"]


# What pytest prints of a failure, and meson of a test of its own.
FAILURE = re.compile(r"(FAILED|ERROR|E  ) |\s*\d+/\d+ .* (FAIL|TIMEOUT|ERROR) ")
FAILURE_LINES = 60
LAST_LINES = 25  # of a part that failed otherwise
LIMIT_SECONDS = 4500.0  # beside six busy loops the parts took 40 to 50 minutes
ABORT_SECONDS = 10.0  # for pytest to print where it stands, and for killed processes to end
COLOR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Part:
    """One command of the test suite."""

    name: str
    argv: Sequence[str]
    by_default: bool = True


# In the order in which they begin.
PARTS = (
    Part("lint", [*MAKE, "lint"]),
    Part("native", ["meson", "test", "-C", "build", "--print-errorlogs"]),
    Part("vm", [*MAKE, "test-vm", "VM_ARGS=tests/vm/guest"], by_default=False),
    # Tests of a file share captures and demos. Not those with the fewest tests last: they take longest.
    Part("kernel", [*PYTEST, "tests/kernel", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]),
    Part("unit", [*PYTEST, "tests", "--ignore=tests/kernel", "--ignore=tests/vm", "-n", "2", "--dist", "worksteal"]),
    Part("vm-rest", [*MAKE, "test-vm-rest"], by_default=False),
)


@dataclass(frozen=True)
class Result:
    """cpu_seconds: of the part's processes, without those that outlive it and without threads of the kernel."""

    part: Part
    exit_code: int
    seconds: float
    cpu_seconds: float
    output: str

    def line(self) -> str:
        outcome = "passed" if self.exit_code == 0 else f"FAILED (exit code {self.exit_code})"
        return f"{self.part.name:<8} {outcome:<24} {clock(self.seconds):>5} {clock(self.cpu_seconds):>8}"

    def failures(self) -> list[str]:
        """The lines that say what failed, those of the end where there are many."""
        lines = COLOR.sub("", self.output).splitlines()
        # A test that failed has one line at once and one at the end.
        failed = {line.partition(" - ")[0] if line.startswith("FAILED ") else line: line
                  for line in lines if FAILURE.match(line)}
        return list(failed.values())[-FAILURE_LINES:] or lines[-LAST_LINES:]


def processes(root: int) -> Iterator[tuple[int, str]]:
    """The process `root` and its descendants: number, and a line with state, wait in the kernel, and command."""
    children: dict[int, list[int]] = {}
    lines: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (entry / "stat").read_text().rpartition(") ")[2].split()[:2]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            waits_for = (entry / "wchan").read_text()
        except OSError:
            continue  # it has ended
        children.setdefault(int(parent), []).append(int(entry.name))
        lines[int(entry.name)] = f"{entry.name:>8} {state} {waits_for:<24} {command[:200]}"
    todo = [root]
    while todo:
        pid = todo.pop()
        if pid in lines:
            yield pid, lines[pid]
        todo += children.get(pid, [])


def end_parts(expired: threading.Event, limit_seconds: float) -> None:
    """Print the processes of the parts, let each Python print where it stands, and kill all."""
    expired.set()
    parts = list(processes(os.getpid()))[1:]
    print(f"\nnot ended after {clock(limit_seconds)}:", *(line for _, line in parts), sep="\n", flush=True)
    # pytest prints the stacks of its threads when it aborts.
    for number, kind in ((signal.SIGABRT, "python"), (signal.SIGKILL, "")):
        for pid in [pid for pid, line in parts if kind in line]:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        time.sleep(ABORT_SECONDS)
    # Else the summary has been printed. A process that the kernel does not end must not keep this one.
    print("failed: a process cannot be killed", flush=True)
    os._exit(1)


def clock(seconds: float) -> str:
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


def run_part(part: Part, prefixed: bool) -> Result:
    """Run a part; its output goes to stdout, line by line after the part's name if `prefixed`."""
    begin = time.monotonic()
    print(f"{part.name}: {shlex.join(part.argv)}", flush=True)
    # Beside other workers a second thread of the linear algebra only spins.
    environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ,
                   "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"}
    # Without bytecode, each worker compiles all tests, for ten seconds. Git ignores it.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if sys.stdout.isatty():
        environment["PY_COLORS"] = "1"
    pieces: list[str] = []
    cpu_seconds = 0.0
    try:
        process = subprocess.Popen(part.argv, cwd=TREE, env=environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        # pytest prints the dots of a line one by one: they are wanted at once.
        text = io.TextIOWrapper(process.stdout, errors="replace")
        for piece in text if prefixed else iter(lambda: text.read(1), ""):
            pieces.append(piece)
            print(f"{part.name}| {piece}" if prefixed else piece, end="", flush=prefixed or piece in ".\n")
        _, status, used = os.wait4(process.pid, 0)
        exit_code = process.returncode = os.waitstatus_to_exitcode(status)
        cpu_seconds = used.ru_utime + used.ru_stime
    except OSError as error:
        pieces.append(f"{part.name}: {error}\n")
        print(pieces[-1], end="", flush=True)
        exit_code = 127
    return Result(part, exit_code, time.monotonic() - begin, cpu_seconds, "".join(pieces))


def run_parts(parts: Sequence[Part], lanes: int, expired: threading.Event) -> list[Result]:
    """Run the parts, so many side by side as there are lanes. After `expired` no part begins."""
    def run(part: Part) -> list[Result]:
        if expired.is_set():
            return []
        result = run_part(part, prefixed=lanes > 1)
        if lanes > 1:
            print(result.line(), flush=True)
        return [result]

    with ThreadPoolExecutor(lanes) as pool:
        return [result for results in pool.map(run, parts) for result in results]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the parts of the tests and print a summary.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(part.name for part in PARTS))
    parser.add_argument("--all", action="store_true", help="also the parts that are not run by default")
    parser.add_argument("--lanes", type=int, choices=(1, 4), default=4)
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, metavar="SECONDS", help="end all parts after it")
    options = parser.parse_args(argv)
    unknown = set(options.parts) - {part.name for part in PARTS}
    if unknown:
        parser.error(f"unknown part: {', '.join(sorted(unknown))}; parts: {', '.join(part.name for part in PARTS)}")
    chosen = [part for part in PARTS if (part.name in options.parts if options.parts else
                                         part.by_default or options.all)]
    begin = time.monotonic()
    expired = threading.Event()
    limit = threading.Timer(options.limit, end_parts, [expired, options.limit])
    limit.daemon = True
    limit.start()
    results = run_parts(chosen, min(options.lanes, len(chosen)), expired)
    limit.cancel()
    seconds = time.monotonic() - begin
    for result in results:
        if result.exit_code:
            print(f"\n{result.part.name}:", *result.failures(), sep="\n")
    print("\npart     result                    time processor")
    for result in results:
        print(result.line())
    failed = [result.part.name for result in results if result.exit_code]
    print(f"{'failed: ' + ', '.join(failed) if failed else 'all parts passed'}, {clock(seconds)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
