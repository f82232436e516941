"""The results of a test: from its directory to one document, by docs/method.md, "Tests: what is reported"."""

from collections.abc import Callable

from blkreel import __version__
from blkreel.traces.errors import TraceError

from . import cache, consistency, depths, mixed_burst, mixes, qd1, rounds, trace, trim
from .directory import Runs, is_test, load
from .judge import judge

__all__ = ["REPORTS", "is_test", "results_of"]

VERSION = 1

REPORTS = {
    "mixed-burst": mixed_burst.content,
    "mixes": mixes.content,
    "consistency": consistency.content,
    "depths": depths.content,
    "qd1": qd1.content,
    "rounds": rounds.content,
    "trim": trim.content,
    "cache": cache.content,
    "trace": trace.content,
}


def results_of(directory, on_step: Callable[[int, int], None] = lambda done, total: None) -> dict:
    """The results of the test in `directory` as a document that JSON can hold, the same at every call.

    Its runs are read batch by batch. on_step(done, total) is told after each of them. What was not done or cannot be
    read is named in `missing`, and no figure stands for it. Raises TraceError where test.json is missing, damaged, or
    names a report that this version does not know.
    """
    test = load(directory)
    name = test.told.get("report")
    if name not in REPORTS:
        raise TraceError(f"{directory} wants the report {name!r}, which this blkreel does not know", "update blkreel")
    runs = Runs(test, on_step)
    content = REPORTS[name](test, runs)
    runs.open_rest()
    told = test.told
    return {
        "version": VERSION, "kind": "test", "blkreel": __version__,
        "test": told.get("test"), "title": told.get("title"), "report": name, "explain": told.get("explain"),
        "quick": bool(told.get("quick")), "scale": told.get("scale", 1.0),
        "path": str(directory), "drive": told.get("drive") or {}, "label": told.get("label"),
        "started_at": told.get("started_at"), "ended_at": told.get("ended_at"), "seed": told.get("seed"),
        "verdict": judge(test, runs, content),
        "parameters": told.get("parameters") or {}, "parameters_shown": told.get("shown") or {},
        "figures": content.figures, "tables": content.tables, "series": content.series,
        "method": [list(each) for each in content.method],
        "missing": runs.missing(),
    }
