"""From a run or a test to a result: its identity, metrics, verdict, and what a comparison needs of it."""

import hashlib
import platform
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from blkreel import __version__
from blkreel.analysis.metrics.definitions.headline import WRITE_WAIT, leading_metrics
from blkreel.analysis.metrics.definitions.metric import TEXT, pace_names
from blkreel.analysis.metrics.definitions.registry import METRICS, figures, value_at
from blkreel.analysis.metrics.measure import Measured
from blkreel.analysis.metrics.partials.partial_file import VERSION as PARTIAL_VERSION
from blkreel.analysis.metrics.partials.partial_file import dump as dump_partial
from blkreel.analysis.metrics.run_times import RunTimes
from blkreel.analysis.report import document
from blkreel.analysis.report.columns import state_name
from blkreel.analysis.report.page import drive_facts
from blkreel.analysis.scale import measure_fleet
from blkreel.analysis.stats.intervals import interval
from blkreel.analysis.stats.ranking import ENOUGH_RUNS
from blkreel.benchmarks.benchmark_file import read_test
from blkreel.benchmarks.reports.results import results_of
from blkreel.benchmarks.results.directory import is_test
from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.files.json_file import finite
from blkreel.common.files.typed_document import parse_json
from blkreel.traces.format.condition import said_inputs
from blkreel.traces.format.metadata_types import Run
from blkreel.traces.format.reader import open_trace

from .result import (
    FORMAT,
    VERSION,
    DriveFacts,
    MetricValue,
    Result,
    canonical,
    checksum_of,
    description_hash,
    id_of,
)

# What reports and verdicts read of the metadata of a run; its threads are in the partial.
_METADATA = ("devices", "lost", "run", "kernel", "writer", "source_format", "source_lacks", "epoch_ns", "clock_pairs",
             "exposure")
Step = Callable[[int, int], None]


def collected(path: str | Path, *, host: str | None = None,
              on_step: Step = lambda done, total: None) -> tuple[Result, bytes | None]:
    """(the result of a run's or a test's directory, the bytes of its partial; None of a test).

    host: the machine that ran it; None: this one. on_step(done, total): progress over I/Os or steps. Raises UsageError
    for a captured trace, TraceError for what cannot be read.
    """
    path = Path(path)
    if is_test(path):
        return _of_test(path, host or platform.node(), on_step), None
    fleet = measure_fleet([path], on_rows=lambda _, done, total: on_step(done, total))
    if len(fleet.measured) != 1:
        raise UsageError(f"{path} holds {len(fleet.measured)} runs", f"name each: blkreel results add {path}/*")
    return of_measured(fleet.measured[0], host or platform.node())


def of_measured(measured: Measured, host: str) -> tuple[Result, bytes]:
    """As collected, of a run that was read. Raises UsageError for a captured trace."""
    if not measured.is_run:
        raise UsageError(f"{measured.path} is a trace, not a run",
                         f"replay it, and add the run: blkreel replay {measured.path} --on DRIVE -o RUN")
    # Numbers as a reader of the file gets them.
    metadata = parse_json(canonical({key: measured.metadata[key] for key in _METADATA if key in measured.metadata}))
    partial = dump_partial(measured.partial)
    source, drive = document.source(measured), document.drive(measured)
    name = (source["path"] or "").rpartition("/")[2]
    numbers = figures(measured.partial, RunTimes.of(measured.metadata))
    run = measured.account
    paces = pace_names(measured.stored_account.get("pace"))
    judged = document.verdict_of(replace(measured, metadata=metadata), numbers, document.limit_of(measured))
    metrics = metrics_of(numbers, paces, judged["withheld"])
    return _sealed({
        "kind": "run", "measured": {"kind": "run", "records": measured.identity}, "label": document.label(measured),
        "drive": _facts(drive, run),
        "workload": {"checksum": source["sha256"] or "", "title": source["title"] or name, "name": name},
        "pace": document.pace_title(measured), "state": state_name(dict(run.state)) if run.state else "",
        "simulated": run.simulated, "rows": measured.rows,
        "verdict": judged, "metrics": metrics,
        "headline": next((metric.key for metric in (*leading_metrics(paces), WRITE_WAIT) if metric.key in metrics), ""),
        "started_at": run.started_at or _started_at(metadata), "kernel": metadata.get("kernel") or "",
        "blkreel": run.environment.blkreel,
        "partial": {"sha256": hashlib.sha256(partial).hexdigest(), "bytes": len(partial), "version": PARTIAL_VERSION},
        "metadata": metadata, "results": None, "path": str(Path(str(measured.path)).absolute()), "host": host}), partial


def identity_of(path: Path) -> dict[str, Any]:
    """What identifies the run or test of a directory, from footers and test.json. Raises TraceError."""
    if not is_test(path):
        return {"kind": "run", "records": open_trace(path).footer.identity}
    header, _ = read_test(path)
    first = next((step["directory"] for step in header["steps"] if step["status"] == "done" and step.get("directory")),
                 None)
    if first is None:
        raise BlkreelError(f"{path}: no measurement of this test is finished",
                           f"resume it: blkreel test --resume {path}")
    # Of the first step only: a test that was resumed replaces itself.
    drive = header.get("drive") or {}
    return {"kind": "test", "test": header.get("test"), "started_at": header.get("started_at"),
            "seed": header.get("seed"), "unit": drive.get("serial_hash") or "",
            "records": open_trace(path / first).footer.identity}


def _of_test(path: Path, host: str, on_step: Step) -> Result:
    measured = identity_of(path)
    results = parse_json(canonical(results_of(path, on_step)))
    measured_steps = (step.get("directory") for step in read_test(path)[0]["steps"] if step["status"] == "done")
    first = next(open_trace(path / directory).metadata for directory in measured_steps if directory)
    name = str(results["test"] or results["report"])
    metrics, header = _test_metrics(results), read_test(path)[0]
    return _sealed({
        "kind": "test", "measured": measured, "label": results["label"] or path.name,
        "drive": _facts(results["drive"], Run.of(first)),
        "workload": {"checksum": test_checksum(results), "name": name,
                     "title": f"{results['title'] or name}{_changes(results, header.get('overrides') or {})}"},
        "pace": "", "state": "", "simulated": results["simulated"], "rows": 0, "verdict": results["verdict"],
        "metrics": metrics, "headline": "score" if "score" in metrics else "",
        "started_at": results["started_at"], "kernel": first.get("kernel") or "",
        "blkreel": str(header.get("blkreel") or ""), "partial": None, "metadata": None,
        "results": results, "path": str(path.absolute()), "host": host})


def _changes(results: Mapping[str, Any], overrides: Mapping[str, str]) -> str:
    """What the test did not do as its title says: `, quick, reads 3`."""
    scale = [f"scaled to {100 * results['scale']:.3g} %"] if results["scale"] != 1 else []
    parameters = [f"{name.replace('_', ' ')} {results['parameters_text'].get(name, text)}"
                  for name, text in overrides.items()]
    return "".join(f", {words}" for words in [*(["quick"] if results["quick"] else []), *scale, *parameters])


def test_checksum(results: Mapping[str, Any]) -> str:
    """Equal for results of one test with the same parameters, scale, shortening, and inputs that keep results apart.

    Results of earlier versions have no inputs, and are equal to those whose inputs are as usual.
    """
    workload = {key: results[key] for key in ("test", "report", "parameters", "scale", "quick")}
    stated_inputs = said_inputs(results)
    apart = {name: text for name, text in (results.get("inputs") or {}).items() if name not in stated_inputs}
    workload |= {"inputs": apart} if apart else {}
    return hashlib.sha256(canonical(workload)).hexdigest()


def _sealed(content: dict[str, Any]) -> Result:
    added_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    result = finite({"format": FORMAT, "version": VERSION, "id": id_of(content["measured"]), **content,
                     "added_at": added_at, "added_by": f"blkreel {__version__}", "checksum": ""})
    return cast(Result, {**result, "checksum": checksum_of(result)})


def _facts(drive: Any, run: Run) -> DriveFacts:
    return {"model": (drive.get("model") or "").strip(), "firmware": (drive.get("firmware") or "").strip(),
            "unit": drive.get("serial_hash") or description_hash(drive, run.emulated),
            "capacity_bytes": drive.get("size_bytes"), "kind": drive.get("kind") or "", "name": drive.get("name") or "",
            "interface": drive_facts.interface(drive, run)}


def _started_at(metadata: dict[str, Any]) -> str | None:
    """From the clock of the run. None if it is unknown, or in a year that has no date."""
    pairs, epoch_ns = metadata.get("clock_pairs") or [], metadata.get("epoch_ns")
    if not pairs or epoch_ns is None:
        return None
    seconds = (pairs[0]["realtime_ns"] + epoch_ns - pairs[0]["monotonic_ns"]) // 10**9
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def metrics_of(numbers: dict[str, Any], paces: tuple[str, ...], withheld: Container[str]) -> dict[str, MetricValue]:
    """The metrics of the registry that have a meaning at the pace and a value. withheld: keys of those without one."""
    metrics: dict[str, MetricValue] = {}
    for metric in METRICS.values():
        if metric.unit is TEXT or metric.key in withheld or not metric.meaningful(paces):
            continue
        if metric.op and not numbers[metric.op]["ops"]:
            continue
        value = value_at(numbers, metric.path)
        if value is not None:
            metrics[metric.key] = {"value": value, "unit": metric.unit.symbol, "low": None, "high": None, "n": 1,
                                   "better": metric.better}
    return metrics


def _test_metrics(results: dict[str, Any]) -> dict[str, MetricValue]:
    """`score`, the headline of the test, and each number of its tables: TABLE/ROW/COLUMN."""
    from blkreel.benchmarks.charts.drives import drives_of
    from blkreel.benchmarks.reports.registry import REPORTS

    metrics: dict[str, MetricValue] = {}
    report = REPORTS[results["report"]]
    value = report.headline(drives_of(results)[0])
    if value is not None and value.value is not None:
        metrics["score"] = {"value": value.value, "unit": report.metric.value_unit.symbol, "low": value.low,
                            "high": value.high, "n": value.n, "better": report.metric.better}
    for table in results["tables"]:
        if not table["columns"]:
            continue
        head, *columns = table["columns"]
        for row in table["rows"]:
            names = [row.get(head["key"]), *(row[column["key"]] for column in columns
                                             if isinstance(row.get(column["key"]), str))]
            for column in columns:
                number = row.get(column["key"])
                if isinstance(number, bool) or not isinstance(number, int | float):
                    continue
                if column["key"].endswith(("_smallest", "_largest")):
                    continue  # of the repeats, which give the interval
                repeats = row.get(f"{column['key']}_repeats") or [number]
                sure = interval(repeats) if len(repeats) >= ENOUGH_RUNS else None
                key = "/".join((_word(table["title"]), ":".join(map(_word, names)), column["key"]))
                while key in metrics:
                    key += "'"
                metrics[key] = {"value": number, "unit": column["unit"], "low": sure.low if sure else None,
                                "high": sure.high if sure else None, "n": len(repeats), "better": ""}
    return metrics


def _word(value: Any) -> str:
    return str(value).strip().lower().replace(" ", "_").replace("/", ":")
