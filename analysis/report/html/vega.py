"""The library that draws charts as pictures (vl_convert, which runs Vega in V8), imported when the first is drawn."""

import resource
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from blkreel.common.limits import LimitReached, address_space_limit_bytes
from blkreel.common.units import format_bytes

# V8 reserves 64 GiB of virtual memory, and ends the process by SIGTRAP or SIGSEGV if it cannot.
_PROBE = """
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))
import vl_convert
vl_convert.vegalite_to_svg({{"data": {{"values": [{{"a": 1}}]}}, "mark": "point"}})
"""


def vega() -> ModuleType:
    """The module vl_convert. Raises LimitReached if the limit of virtual memory leaves too little for V8."""
    limit = address_space_limit_bytes()
    if limit is not None and not _fits(limit):
        raise LimitReached("cannot draw charts: the virtual memory of this process is limited to "
                           f"{format_bytes(limit)}", "raise the limit: ulimit -v unlimited")
    import vl_convert  # takes 0.25 s, and tables do not need it

    return vl_convert


@cache
def _fits(limit_bytes: int) -> bool:
    """Whether V8 starts in a process of its own that may use what this one has left."""
    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    probe = subprocess.run([sys.executable, "-I", "-c", _PROBE.format(limit=max(0, limit_bytes - used_bytes))],
                           stdin=subprocess.DEVNULL, capture_output=True)
    return probe.returncode == 0
