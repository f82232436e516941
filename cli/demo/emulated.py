"""The emulated drive of the demo."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from blkreel.common.emulated import FILE, RUN, read_account
from blkreel.common.errors import BlkreelError

from .steps import BLKREEL, end
from .workspace import Workspace

# Beyond its write cache, which writes of 110 MB/s fill within a minute: so each run starts from the same state.
DESCRIPTION = "nil:sata-qlc,cache=0"
LABEL = "emulated SATA QLC"
_NAME = "demo-sata-qlc"
_START_S = 60.0
_POLL_S = 0.05


@dataclass(frozen=True)
class EmulatedDrive:
    """backing_file: of its loop device. beyond: what this machine cannot reach of the description."""

    device: Path
    backing_file: Path
    beyond: list[str]


@contextmanager
def emulated_drive(workspace: Workspace, size_bytes: int) -> Iterator[EmulatedDrive]:
    """An emulated drive in memory during the block, by `blkreel emulate`. Its users must end before it."""
    errors = workspace.path / "emulate.log"
    with errors.open("w") as log:
        process = subprocess.Popen([*BLKREEL, "emulate", DESCRIPTION, "--size", str(size_bytes), "--name", _NAME,
                                    "--accept-inexact"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=log, env=workspace.environment, start_new_session=True)
    try:
        deadline_s = time.monotonic() + _START_S
        while not (account := read_account(_NAME)) or account["pid"] != process.pid:
            if process.poll() is not None or time.monotonic() > deadline_s:
                lines = errors.read_text().strip().splitlines() or ["no message"]
                raise BlkreelError(f"the emulated drive does not start: {lines[-1]}",
                                   f"run: blkreel emulate {DESCRIPTION}")
            time.sleep(_POLL_S)
        yield EmulatedDrive(Path(account["device"]), RUN / _NAME / FILE, account["beyond"])
    finally:
        end(process)
