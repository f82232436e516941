"""The capture helper as a child process."""

import json
import subprocess
from pathlib import Path

from blkreel.traces.rows_child import RowsChild, error_of
from blkreel.traces.spool import Spool

HELPER = Path(__file__).with_name("blkreel-capture")
_NAME = "the capture helper"


class Helper(RowsChild):
    """A running helper; the source named bpf, as capture/sources/__init__.py wants one."""

    def __init__(self, arguments: list[str], spool: Spool, on_change):
        self.threads: dict[int, dict] = {}  # in the spool, beside the rows
        super().__init__(_NAME, HELPER, arguments, spool, on_change, cwd="/")


def probe(kind: str = "auto") -> dict:
    """Load the BPF programs and let them go: {"programs": kind, "io_start": bool}.

    Raises BlkreelError with the reason where the kernel refuses them.
    """
    result = subprocess.run([HELPER, "--probe", "--programs", kind], capture_output=True, text=True)
    if result.returncode:
        raise error_of(_NAME, result.stderr, result.returncode)
    return json.loads(result.stdout)
