"""One number of a document by its name, unrounded: what the command beside each figure of a page prints."""

import difflib
import json

from blkreel.traces.errors import BlkreelError, UsageError

from .definitions import HEADLINE

# What people call figures: those of the headline by their own names, others by their keys.
NAMES = {
    "wait_time": "wait_ns", "wait": "wait_ns", "read_throughput": "read_throughput_mb_s",
    "write_throughput": "write_throughput_mb_s", "service_time": "read_service_ns", "read_service": "read_service_ns",
    "read_p50": "read_latency_p50_ns", "read_p99": "read_latency_p99_ns", "read_latency_p50": "read_latency_p50_ns",
    "read_latency_p99": "read_latency_p99_ns", "response_p99": "read_response_p99_ns",
    "read_response_p99": "read_response_p99_ns", "lateness_p99": "lateness_p99_ns",
    **{f"{kind}_{name}": f"{kind}.latency.{name}_ns" for kind in ("read", "write")
       for name in ("p50", "p90", "p99", "p99_9") if (kind, name) not in (("read", "p50"), ("read", "p99"))},
}


def printed(document: dict, key: str) -> str:
    """The figure of a report under a dotted key (read.bursts.throughput_mb_s) or a name of the headline (wait_ns),
    as --fail-if takes it too (wait_time). Of several runs of one drive it is what their comparison shows: the geometric
    mean of what it leads with, all else of the runs pooled.

    Raises UsageError for a key that there is not, BlkreelError for a figure that cannot be given.
    """
    figures = figures_of(document)
    asked, key = key, NAMES.get(key, key) if key not in figures else key
    key = HEADLINE[key].key if key in HEADLINE else key
    found = figures
    for part in key.split("."):
        if not isinstance(found, dict) or part not in found:
            raise UsageError(f"there is no figure {asked!r}", f"--figure takes {_near(figures, asked)}")
        found = found[part]
    if isinstance(found, dict):
        raise UsageError(f"{key!r} is several figures", f"--figure takes {key}.{', '.join(found)}")
    name = next((name for name, definition in HEADLINE.items() if definition.key == key), None)
    if "sections" in document and name:
        found = document["sections"][0]["entries"][0]["headline"][name]["value"]
    if found is None:
        raise BlkreelError(f"{key} cannot be given", _why(figures, key))
    return found if isinstance(found, str) else json.dumps(found)


def figures_of(document: dict) -> dict:
    """The figures of a report of one run or trace, of one test, or of a comparison of runs of one drive and pace."""
    if "entry" in document:
        return document["entry"]["figures"]
    if "figures" in document:
        return document["figures"]
    entries = [entry for section in document.get("sections", ()) for entry in section["entries"]]
    if len(entries) == 1:
        return entries[0]["figures"]
    raise UsageError("--figure is of one run, trace or test, or of several runs of one drive at one pace",
                     "blkreel report RUN --figure KEY, or blkreel compare RUN RUN … --figure KEY")


def keys(figures: dict, before: str = "") -> list[str]:
    found = []
    for name, value in figures.items():
        found += keys(value, f"{before}{name}.") if isinstance(value, dict) else [f"{before}{name}"]
    return found


def _near(figures, key):
    known = keys(figures)
    near = difflib.get_close_matches(key, known, 3, 0.5)
    return f"for example {', '.join(near or known[:5])}; all of them: blkreel report … --json"


def _why(figures, key):
    *above, name = key.split(".")
    for part in above:
        figures = figures[part]
    if name.removesuffix("_ns") in figures.get("too_small", ()):
        return f"n too small (n={figures['n']:,})"
    return "nothing of this kind happened, or too little of it"
