"""The real program and its data, on a drive: alone, and beside a writer."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from blkreel.common.emulated import EmulatedUses, reasons
from blkreel.common.errors import BlkreelError
from blkreel.common.verdict import judged

from . import application, writer
from .pairs import Pair, Pairs, late_words
from .workspace import Workspace

DATASET = "dataset"
_ROW_BYTES = 4 * 8
_GROUP_ROWS = 1 << 17  # a column of a row group is 1 MiB
_FILE_BYTES = 100_000_000
WRITTEN = "download"
WRITTEN_BYTES = 512 << 20
RATE_BYTES_S = 110_000_000
DEPTH = 4  # of a writer that keeps its rate beside a program that reads ahead
LEAD_S = 2.0  # from the start of the writer to that of the program
_LONGEST_S = 120.0
_ISOLATED = ("-I", "-S", "-B")  # only the standard library on the path, and no file written


@dataclass(frozen=True)
class Run:
    """Of the program: its own time, and what was written to the drive meanwhile."""

    seconds: float
    written_bytes: int


def command(mount: Path) -> list[str]:
    """The program, on a mounted drive."""
    libraries = Path(pa.__file__).parent.parent
    return [_interpreter(), *_ISOLATED, application.__file__, str(libraries), str(mount / DATASET),
            f"/sys/dev/block/{_number(mount)}/stat"]


def run_pairs(workspace: Workspace, device: Path, backing_file: Path, count: int, mount: Callable[[], Path],
              on_pair: Callable[[Pair], None]) -> Pairs:
    """Run the program `count` times alone and beside the writer; every other pair begins with the writer, so that a
    drift of the drive cancels. mount(): mounts the device again, without cached data, and gives the mount point.
    backing_file: of the loop device."""
    uses = EmulatedUses([str(backing_file)])
    pairs = []
    for number in range(count):
        runs: dict[bool, Run] = {}
        for beside in ((False, True), (True, False))[number % 2]:
            directory = mount()
            if beside:
                with _writer(workspace, directory):
                    time.sleep(LEAD_S)
                    runs[beside] = run_once(workspace, directory)
            else:
                runs[beside] = run_once(workspace, directory)
        reached = min(1.0, runs[True].written_bytes / runs[True].seconds / RATE_BYTES_S)
        pairs.append(Pair(runs[False].seconds * 1e9, runs[True].seconds * 1e9, reached))
        on_pair(pairs[-1])
    used = uses.end()
    return Pairs(tuple(pairs), judged(reasons(used)), notes=tuple(late_words(used)))


def run_once(workspace: Workspace, mount: Path) -> Run:
    """Raises BlkreelError if the program fails."""
    try:
        result = subprocess.run(command(mount), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                env=workspace.environment, timeout=_LONGEST_S)
    except subprocess.TimeoutExpired:
        raise BlkreelError(f"the program takes longer than {_LONGEST_S:.0f} s", "stop other programs") from None
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        raise BlkreelError(f"the program failed: {lines[-1]}")
    document = json.loads(result.stdout)
    return Run(document["seconds"], document["written_bytes"])


@contextmanager
def _writer(workspace: Workspace, mount: Path) -> Iterator[None]:
    words = [_interpreter(), *_ISOLATED, writer.__file__, mount / WRITTEN, WRITTEN_BYTES, RATE_BYTES_S, DEPTH]
    process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=workspace.environment)
    try:
        assert process.stdout is not None and process.stderr is not None
        if not process.stdout.readline():
            raise BlkreelError(f"the writer failed: {process.stderr.read().strip().rpartition(chr(10))[2]}")
        yield
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


def _number(path: Path) -> str:
    device = path.stat().st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def _interpreter() -> str:
    """The interpreter as python3, the thread name in the trace."""
    python3 = Path(sys.executable).with_name("python3")
    return str(python3 if python3.exists() else sys.executable)


def make_dataset(directory: Path, size_bytes: int) -> int:
    """Write a Parquet dataset of about `size_bytes`, of random numbers without compression. Returns its rows."""
    directory.mkdir()
    files = max(1, round(size_bytes / _FILE_BYTES))
    rows = max(1, size_bytes // files // _ROW_BYTES)
    random = np.random.default_rng(1)
    for number in range(files):
        table = pa.table({
            "when": np.sort(random.integers(0, 2**62, rows)),
            "drive": random.integers(0, 2**62, rows),
            "latency": random.exponential(1e-4, rows),
            "size": random.random(rows),
        })
        pq.write_table(table, directory / f"part-{number:02}.parquet", compression="none", use_dictionary=False,
                       row_group_size=_GROUP_ROWS)
    return rows * files
