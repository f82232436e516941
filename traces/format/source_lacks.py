"""What the source of a trace did not record (docs/import.md), and so what cannot be done with the trace."""

from collections.abc import Mapping
from typing import Any

# From this step of the source's clock on, times are not repeated: gaps between I/Os are far shorter.
COARSE_CLOCK_NS = 100_000_000


def lacks(metadata: Mapping[str, Any], what: str) -> bool:
    """Whether the source did not record `what`: latency, thread, process, dependencies and so on."""
    return what in (metadata.get("source_lacks") or [])


def clock_step_ns(metadata: Mapping[str, Any]) -> int:
    """Step of the source's clock; 1 if it is not known."""
    return int(metadata.get("clock_resolution_ns") or 1)
