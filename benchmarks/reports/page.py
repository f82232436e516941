"""The page of a benchmark's results, of one or several drives (docs/tests.md, "Reading the pages")."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from blkreel.analysis.charts.model import MOST_OPEN, Chart, Column, Page, Row, Section, Table, folded_beyond
from blkreel.analysis.report.drives_file import DrivesFile
from blkreel.analysis.report.page.drive_facts import filters_of
from blkreel.benchmarks.charts.chart_context import ChartContext, ranks_of
from blkreel.benchmarks.charts.drives import DriveResults, drives_of, entries_of
from blkreel.benchmarks.results.tables import drive_line, parameter_words

from .registry import REPORTS

_FORMATS = {"ns": "time", "bytes": "size", "MB/s": "rate"}


def page_of(document: dict[str, Any], highlight: str | None = None, drives_file: DrivesFile | None = None) -> Page:
    """document: of results_of() or compared(). highlight: a drive's label, or words that only its label
    or model has. drives_file: facts from drives.toml. Raises UsageError for a highlight that matches no drive.
    """
    drives = drives_of(document)
    report = REPORTS[document["report"]]
    values = {drive.key: value for drive in drives
              if drive.verdict["level"] != "invalid" and (value := report.headline(drive)) is not None}
    ranks = ranks_of(values, report.metric.better == "higher")
    entries = entries_of(drives, ranks, highlight, drives_file)
    drives.sort(key=lambda drive: ranks.get(drive.key) or len(drives) + 1)  # stable: then as they were named
    context = ChartContext(tuple(drives))
    source = _source(document, drives)
    parts = [replace(section, charts=folded_beyond(section.charts, MOST_OPEN), source=source)
             for section in report.sections(context) if section.charts]
    parts.append(_tests(context))
    if not context.several and len(drives[0].tests) == 1 and document["tables"]:
        parts.append(_every_figure(document))
    return Page("test", _title(document, drives), _lead(document, drives), entries, tuple(parts),
                filters_of(entries), tuple(_notices(document)), tuple(_parameters(document)),
                tuple(_decisions(document)))


def _title(document: dict[str, Any], drives: Sequence[DriveResults]) -> str:
    test = document["test"] or document["report"]
    return f"{test}: {drives[0].key if len(drives) == 1 else f'{len(drives)} drives'}"


def _source(document: dict[str, Any], drives: Sequence[DriveResults]) -> str:
    """Where the data of the pictures comes from: test, drives, and date."""
    days = sorted(test["started_at"][:10] for drive in drives for test in drive.tests if test["started_at"])
    quick = " --quick: not the figures of the method" if document["quick"] else ""
    return " · ".join(filter(None, (
        f"{document['test'] or document['report']}{quick}",
        drives[0].key if len(drives) == 1 else f"{len(drives)} drives", "simulated" if document["simulated"] else "",
        " to ".join(dict.fromkeys(days[:1] + days[-1:])))))


def _lead(document: dict[str, Any], drives: Sequence[DriveResults]) -> str:
    title = document["title"] or ""
    line = "" if len(drives) > 1 else drive_line({"drive": drives[0].tests[0]["drive"], "label": drives[0].key})
    return " ".join(f"{words}." for words in (line, title[:1].upper() + title[1:]) if words)


def _decisions(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The description of the test, and choices that its method leaves open."""
    if document["explain"]:
        yield "The test", document["explain"]
    yield from ((name, text) for name, text in document["method"])


def _notices(document: dict[str, Any]) -> Iterator[str]:
    if document["quick"]:
        yield "Quick: shortened for a trial. These are not the figures of the method."
    if document["missing"]:
        yield "Missing: " + "; ".join(f"{step['title']} ({step['why']})" for step in document["missing"]) + "."
    if document.get("tests"):  # of a comparison: differences between the tests concern no single drive
        for reason in document["verdict"]["reasons"]:
            if reason["code"] == "parameters_differ":
                yield f"{reason['text'][:1].upper()}{reason['text'][1:]}."


def _parameters(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in document["parameters"].items():
        yield name.replace("_", " "), document["parameters_text"].get(name) or parameter_words(value)
    yield "test", str(document["test"])
    yield "scale", parameter_words(document["scale"])
    yield "seed", parameter_words(document["seed"])
    yield "blkreel", str(document["blkreel"])


def _tests(context: ChartContext) -> Section:
    """Each test with its verdict and its directory, from which every figure is recomputed."""
    rows = []
    for drive in context.drives:
        for test in drive.tests:
            reasons = "; ".join(f"{reason['level']}: {reason['text']}" for reason in test["verdict"]["reasons"])
            rows.append(Row({"drive": drive.key, "verdict": test["verdict"]["level"], "started": test["started_at"],
                             "directory": test["path"], "reasons": reasons}, drive.key, path=test["path"]))
    table = Table("The tests and their verdicts", (
        Column("drive", "Drive"), Column("verdict", "Verdict", "verdict"), Column("started", "Started"),
        Column("directory", "RUN"), Column("reasons", "Why")), tuple(rows))
    text = "Several tests of one drive count as repetitions." if len(rows) > len(context.drives) else ""
    return Section("tests", "Tests", (Chart("tests", "The tests", table, text=text),))


def _every_figure(document: dict[str, Any]) -> Section:
    """The tables of the document, as in the terminal."""
    (key,) = {drive.key for drive in drives_of(document)}
    charts = []
    for index, table in enumerate(table for table in document["tables"] if table["rows"]):
        columns = tuple(Column(column["key"], column["title"] or "Of", _format(column, table["rows"]),
                               "" if column["unit"] in _FORMATS else column["unit"]) for column in table["columns"])
        rows = tuple(Row({column.key: row.get(column.key) for column in columns}, key, dict(row.get("why", {})),
                         path=document["path"]) for row in table["rows"])
        charts.append(Chart(f"table-{index}", table["title"], Table(table["title"], columns, rows)))
    return Section("every-figure", "Every figure", tuple(charts), ("As in the terminal.",))


def _format(column: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    values = [row.get(column["key"]) for row in rows if row.get(column["key"]) is not None]
    if any(isinstance(value, str | bool) for value in values):
        return "text"
    if column["key"] == "block":
        return "block"
    if column["unit"] in _FORMATS:
        return _FORMATS[column["unit"]]
    return "count" if all(isinstance(value, int) for value in values) else "number"
