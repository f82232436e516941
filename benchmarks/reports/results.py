"""The results of a test as one document (docs/method.md, "Tests: what is reported")."""

from collections.abc import Callable
from pathlib import Path

from blkreel import __version__
from blkreel.benchmarks.results.directory import Runs, load
from blkreel.benchmarks.results.document import Results
from blkreel.benchmarks.results.endurance import endurance_tables
from blkreel.benchmarks.results.verdict import verdict_of
from blkreel.common.errors import TraceError

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
