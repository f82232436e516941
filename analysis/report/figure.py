"""One figure of a document by name, unrounded (--figure)."""

import json
from typing import Any

from blkreel.analysis.metrics.definitions.headline import (
    HEADLINE,
    RELATIVE_PERFORMANCE,
    usable_keys,
    why_missing,
    why_refused,
)
from blkreel.analysis.metrics.definitions.metric import BYTES, COUNT, IOPS, MB_S, NS, TEXT, pace_names
from blkreel.analysis.metrics.definitions.registry import METRICS, find, value_at
from blkreel.analysis.stats.intervals import mean_of_runs
from blkreel.common.errors import BlkreelError, UsageError, did_you_mean

from .columns import is_withheld
from .verdict import Document


def printed(document: Document, name: str) -> str:
    """The figure of a report under the key of a metric (read_p99) or a dotted path (read.latency.p99_ns).

    Of several runs of one drive: metrics of the headline as their comparison shows them; percentiles, counts and bytes
    of the runs pooled; the mean of the runs of all others.
    Raises UsageError for a name that does not exist, BlkreelError for a figure that cannot be given.
    """
    if name == RELATIVE_PERFORMANCE:
        return json.dumps(_relative(document)[0])
    figures = figures_of(document)
    metric = find(name) if name not in figures else None
    path = metric.path if metric else name
    paces = _paces_of(document)
    if metric and paces and (refused := why_refused(metric, paces)):
        raise UsageError(f"--figure {name}: {refused}", f"metrics at this pace: {usable_keys(paces)}")
    value: Any = figures
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            names = [*(METRICS if "all" in figures else ()), *paths(figures)]
            raise UsageError(f"there is no figure {name!r}",
                             did_you_mean(name, names, "list all figures: blkreel report … --json"))
        value = value[part]
    if isinstance(value, dict):
        raise UsageError(f"{path!r} is several figures", f"--figure takes {path}.{', '.join(value)}")
    entry = document.get("entry") or ("sections" in document and document["sections"][0]["entries"][0])
    if entry and metric:
        if is_withheld(entry, metric):
            raise BlkreelError(f"{name} cannot be given", "the verdict withholds it: list the reasons with --why")
        if metric in HEADLINE:
            value = entry["headline"][metric.key]["value"]
        elif not metric.pooled and metric.unit not in (COUNT, BYTES, TEXT):
            value = mean_of_runs([value_at(run["figures"], path) for run in entry["runs"]])
    if value is None:
        raise BlkreelError(f"{name} cannot be given", why_missing(figures, metric, paces) if metric and paces else
                           _why(figures, path))
    return value if isinstance(value, str) else json.dumps(value)


def with_unit(document: Document, name: str) -> str:
    """The figure with its unit: `507226 ns`, `812.5 MB/s`, `0.83 of Drive A`; a count or a share has none."""
    if name == RELATIVE_PERFORMANCE:
        value, reference = _relative(document)
        return f"{json.dumps(value)} of {reference}"
    text, metric = printed(document, name), find(name)
    leaf = f"_{(metric.path if metric else name).rpartition('.')[2]}"
    symbol = next((unit.symbol for unit in (NS, MB_S, BYTES, IOPS) if leaf.endswith(unit.suffix)), "")
    return f"{text} {symbol}" if symbol else text


def _relative(document: Document) -> tuple[float, str]:
    """(relative performance of a drive, label of the reference drive) of a comparison of two drives."""
    what = f"--figure {RELATIVE_PERFORMANCE}"
    relative = document.get("relative_performance")
    if not relative:
        paces = _paces_of(document)
        raise UsageError(f"{what}: not two drives with results on two workloads",
                         f"metrics of one workload: {usable_keys(paces)}" if paces else
                         "compare runs of several traces: blkreel compare RUN RUN …")
    reference: str = relative["reference"]
    values = [own["value"] for label, own in relative["drives"].items() if label != reference]
    if not values:
        raise BlkreelError(f"{RELATIVE_PERFORMANCE} cannot be given", "no drive has a result on all workloads")
    if len(values) > 1:
        raise UsageError(f"{what} is of two drives, and these are {len(values) + 1}",
                         "name the runs of two, or take all from --json")
    return values[0], reference


def figures_of(document: Document) -> Document:
    """The figures of a report of one run or trace, of one test, or of a comparison of runs of one drive and pace."""
    entries: list[Document] = [entry for section in document.get("sections", ()) for entry in section["entries"]]
    if "entry" in document:
        entries = [document["entry"]]
    elif "figures" in document:
        entries = [document]
    if len(entries) == 1:
        figures: Document = entries[0]["figures"]
        return figures
    raise UsageError("--figure is of one run, trace or test, or of several runs of one drive at one pace",
                     "blkreel report RUN --figure KEY, or blkreel compare RUN RUN … --figure KEY")


def _paces_of(document: Document) -> tuple[str, ...]:
    """The paces of the runs; empty of a test."""
    if "entry" in document:
        return pace_names(document["entry"]["pace"])
    return tuple(dict.fromkeys(pace for section in document.get("sections", ()) for pace in pace_names(
        section["entries"][0]["pace"])))


def paths(figures: Document, before: str = "") -> list[str]:
    """The dotted paths of all figures of a document."""
    return [path for name, value in figures.items()
            for path in (paths(value, f"{before}{name}.") if isinstance(value, dict) else [f"{before}{name}"])]


def _why(figures: Document, path: str) -> str:
    branch, _, leaf = path.rpartition(".")
    node = value_at(figures, branch) if branch else figures
    if leaf.removesuffix("_ns") in node.get("too_small", ()):
        return f"n too small (n={node['n']:,})"
    return "nothing of this kind happened, or too little of it"
