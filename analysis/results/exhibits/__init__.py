"""The page of a test's results, of one drive or of several side by side (docs/tests.md, "Reading the pages")."""

from ...exhibits.model import Column, Exhibit, Page, Row, Section, Table
from ..shown import drive_line, parameter_words
from . import cache, consistency, depths, mixed_burst, mixes, qd1, rounds, trace, trim
from .ground import Ground, ranks_of
from .subjects import entries_of, subjects_of

__all__ = ["KINDS", "page_of"]

KINDS = {"mixed-burst": mixed_burst, "mixes": mixes, "consistency": consistency, "depths": depths, "qd1": qd1,
         "rounds": rounds, "trim": trim, "cache": cache, "trace": trace}
_FILTERS = ("class", "interface", "flash", "model", "firmware")
_FORMATS = {"ns": "time", "bytes": "size", "MB/s": "rate"}


def page_of(document: dict, highlight: str | None = None, catalogue=None) -> Page:
    """document: of analysis.results.results_of, or of compared. highlight: a drive's label, or words that it alone has.
    catalogue: analysis.catalogue.Catalogue, what the user told of the drives. Raises UsageError for a highlight that
    is no drive.
    """
    subjects = subjects_of(document)
    kind = KINDS[document["report"]]
    ranks = _ranks({subject.key: kind.lead(subject) for subject in subjects})
    entries = entries_of(subjects, ranks, highlight, catalogue)
    subjects.sort(key=lambda subject: ranks.get(subject.key) or len(subjects) + 1)  # stable: then as they were named
    ground = Ground(tuple(subjects))
    parts = [section for section in kind.sections(ground) if section.exhibits]
    parts.append(_tests(ground))
    if not ground.several and len(subjects[0].tests) == 1 and document["tables"]:
        parts.append(_every_figure(document))
    return Page("test", _title(document, subjects), _lead(document, subjects), entries, tuple(parts),
                tuple(name for name in _FILTERS if len({entry.facts.get(name) for entry in entries}) > 1),
                tuple(_notices(document)), tuple(_parameters(document)),
                tuple(_decisions(document)))


def _ranks(leads):
    """key -> rank by what the page leads with."""
    known = {key: value for key, (value, _) in leads.items() if value is not None}
    return ranks_of(known, any(higher for _, higher in leads.values()))


def _title(document, subjects):
    test = document["test"] or document["report"]
    return f"{test}: {subjects[0].key if len(subjects) == 1 else f'{len(subjects)} drives'}"


def _lead(document, subjects):
    title = document["title"] or ""
    line = "" if len(subjects) > 1 else drive_line({"drive": subjects[0].tests[0]["drive"], "label": subjects[0].key})
    return " ".join(f"{words}." for words in (line, title[:1].upper() + title[1:]) if words)


def _decisions(document):
    """What the test does, at length, and what its method leaves open."""
    if document["explain"]:
        yield "The test", document["explain"]
    yield from ((name, text) for name, text in document["method"])


def _notices(document):
    if document["quick"]:
        yield "Quick: shortened to see that it works. These are not the figures of the method."
    if document["missing"]:
        yield "Missing: " + "; ".join(f"{each['title']} ({each['why']})" for each in document["missing"]) + "."
    if document.get("tests"):  # a comparison: what sets the tests themselves apart is of no single drive
        for reason in document["verdict"]["reasons"]:
            if " is not the same: " in reason["text"]:
                yield f"{reason['text'][:1].upper()}{reason['text'][1:]}."


def _parameters(document):
    for name, value in document["parameters"].items():
        yield name.replace("_", " "), document["parameters_shown"].get(name) or parameter_words(value)
    yield "test", str(document["test"])
    yield "scale", parameter_words(document["scale"])
    yield "seed", parameter_words(document["seed"])
    yield "blkreel", str(document["blkreel"])


def _tests(ground):
    """Each test with its verdict and where it lies: what every figure is recomputed from."""
    rows = []
    for subject in ground.subjects:
        for test in subject.tests:
            reasons = "; ".join(f"{reason['level']}: {reason['text']}" for reason in test["verdict"]["reasons"])
            rows.append(Row({"drive": subject.key, "verdict": test["verdict"]["level"], "started": test["started_at"],
                             "directory": test["path"], "reasons": reasons}, subject.key, path=test["path"]))
    table = Table("The tests, and how far to trust them", (
        Column("drive", "Drive"), Column("verdict", "Verdict", "verdict"), Column("started", "Started"),
        Column("directory", "RUN"), Column("reasons", "Why")), tuple(rows))
    text = "Several tests of one drive count as repetitions." if len(rows) > len(ground.subjects) else ""
    return Section("tests", "Tests", (Exhibit("tests", "The tests", table, text=text),))


def _every_figure(document):
    """The document's own tables, as the terminal shows them."""
    (key,) = {subject.key for subject in subjects_of(document)}
    exhibits = []
    for index, table in enumerate(one for one in document["tables"] if one["rows"]):
        columns = tuple(Column(column["key"], column["title"] or "Of", _format(column, table["rows"]),
                               "" if column["unit"] in _FORMATS else column["unit"]) for column in table["columns"])
        rows = tuple(Row({column.key: row.get(column.key) for column in columns}, key, dict(row.get("why", {})),
                         path=document["path"]) for row in table["rows"])
        exhibits.append(Exhibit(f"table-{index}", table["title"], Table(table["title"], columns, rows)))
    return Section("every-figure", "Every figure", tuple(exhibits), ("As the terminal shows them.",))


def _format(column, rows):
    values = [row.get(column["key"]) for row in rows if row.get(column["key"]) is not None]
    if any(isinstance(value, str | bool) for value in values):
        return "text"
    if column["key"] == "block":
        return "block"
    if column["unit"] in _FORMATS:
        return _FORMATS[column["unit"]]
    return "count" if all(isinstance(value, int) for value in values) else "number"
