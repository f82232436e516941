"""The results of a test as one document (docs/method.md, "Tests: what is reported")."""

from collections.abc import Callable
from pathlib import Path

from blkreel import __version__
from blkreel.analysis.metrics.definitions.headline import WRITE_AMPLIFICATION
from blkreel.analysis.metrics.write_amplification import WriteCounts, why_unknown, write_amplification
from blkreel.benchmarks import metric
from blkreel.benchmarks.results.directory import Runs, load
from blkreel.benchmarks.results.document import Figures, FigureTable, Results, figure_table
from blkreel.benchmarks.results.verdict import verdict_of
from blkreel.common.binning import sum_of
from blkreel.common.errors import TraceError
from blkreel.common.units import digits
from blkreel.traces.format.metadata_types import Run

from .registry import REPORTS

VERSION = 1


def results_of(path: str | Path, on_step: Callable[[int, int], None] = lambda done, total: None) -> Results:
    """The results of the test in that directory, the same at every call.

    Runs are read in batches. on_step(done, total) is called after each run. Steps without a readable run are in
    `missing`. Raises TraceError if test.json is missing or damaged, or names an unknown report.
    """
    test = load(path)
    document = test.document
    name = document.get("report", "")
    if name not in REPORTS:
        raise TraceError(f"{path}: unknown report {name!r}", "update blkreel")
    runs = Runs(test, on_step)
    content = REPORTS[name].content(test, runs)
    runs.read_rest()
    return {
        "version": VERSION, "kind": "test", "blkreel": __version__,
        "test": document.get("test"), "title": document.get("title"), "report": name,
        "explain": document.get("explain"), "quick": bool(document.get("quick")), "scale": document.get("scale", 1.0),
        "path": str(path), "drive": document.get("drive") or {}, "units": document.get("units") or [],
        "label": document.get("label"),
        "started_at": document.get("started_at"), "ended_at": document.get("ended_at"), "seed": document.get("seed"),
        "verdict": verdict_of(test, runs, content), "simulated": runs.simulated,
        "parameters": document.get("parameters") or {}, "parameters_text": document.get("parameters_text") or {},
        "inputs": runs.inputs(),
        "figures": content.figures, "series": content.series,
        "tables": [table for table in (*content.tables, *endurance_tables(runs)) if table["rows"]],
        "method": [list(entry) for entry in content.method],
        "missing": runs.missing(),
    }


_COLUMNS = [metric.text("of", ""),
            metric.number(WRITE_AMPLIFICATION.key, WRITE_AMPLIFICATION.title, "", WRITE_AMPLIFICATION.formula,
                          WRITE_AMPLIFICATION.better),
            metric.text("interval", "Interval"), metric.size("host_bytes", "Written to the drive"),
            metric.size("media_bytes", "Written to its media")]


def endurance_tables(runs: Runs) -> list[FigureTable]:
    """No table of a drive without a counter of media writes."""
    counts = {step.id: write_counts for step in runs.test.steps
              if step.id in runs.metadata and (write_counts := WriteCounts.of(Run.of(runs.metadata[step.id])))}
    if not counts:
        return []
    rows = [_row(step.title, counts[step.id]) for step in runs.test.steps if step.id in counts]
    if len(counts) > 1:
        rows.append(_row("all steps", sum_of(counts.values())))
    return [figure_table(WRITE_AMPLIFICATION.title, _COLUMNS, rows)]


def _row(title: str, counts: WriteCounts) -> Figures:
    factor, reason = write_amplification(counts), why_unknown(counts)
    in_bytes = counts.unit == "B"
    return {"of": title, WRITE_AMPLIFICATION.key: factor.value if factor else None,
            "interval": f"{digits(factor.low)} to {digits(factor.high)}" if factor else None,
            "host_bytes": counts.host if in_bytes else None, "media_bytes": counts.media if in_bytes else None,
            "why": {WRITE_AMPLIFICATION.key: reason, "interval": "not known"} if reason else {}}
