"""Results of one test on several drives, or on one drive at several times, as one document."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from blkreel.analysis.stats.ranking import ENOUGH_RUNS
from blkreel.common.binning import grouped
from blkreel.common.device import drive_units
from blkreel.common.errors import UsageError
from blkreel.common.verdict import Reason, Verdict, judged, merged_by_name, step_reason

from .document import ColumnHead, Figures, FigureTable, Results, without
from .tables import parameter_words, text_table
from .verdict import few_repeats

_Named = Mapping[str, Results]
_TEST_KEYS = ("path", "drive", "quick", "scale", "started_at", "ended_at", "seed", "parameters", "verdict", "figures",
              "series", "missing")


def compared(paths: Sequence[str | Path], documents: Sequence[Results]) -> Results:
    """Table rows of the tests in turn, with their labels. Differing parameters qualify the comparison.

    Raises UsageError for results of different tests.
    """
    first = documents[0]
    for path, document in zip(paths, documents, strict=True):
        if (document["test"], document["report"]) != (first["test"], first["report"]):
            raise UsageError(f"{paths[0]} is the test {first['test']}, {path} is {document['test']}",
                             "compare results of one test")
    labels = distinct([document["label"] or Path(path).name for path, document in zip(paths, documents, strict=True)],
                      paths)
    documents = _with_all_repeats(documents)
    named = dict(zip(labels, documents, strict=True))
    return cast(Results, {
        **without(cast(Figures, first), "path", "series", "units"), "kind": "test comparison",
        "label": " and ".join(labels), "drive": {}, "labels": labels,
        "started_at": None, "ended_at": None, "quick": any(document["quick"] for document in documents),
        "simulated": any(document["simulated"] for document in documents),
        "verdict": _verdict(named),
        "figures": {label: document["figures"] for label, document in named.items()},
        "tables": _tables(named), "method": _method(named), "tests": _tests(named),
        "missing": [{**step, "title": f"{label}: {step['title']}"} for label, document in named.items()
                    for step in document["missing"]],
    })


def _with_all_repeats(documents: Sequence[Results]) -> list[Results]:
    """The verdicts count the repeats of all tests that are repetitions of one drive."""
    repeats: Counter[tuple[str, str]] = Counter()
    for document in documents:
        few = [int(reason["value"] or 0) for reason in document["verdict"]["reasons"] if _is_few(reason)]
        repeats[_repetition_key(document)] += min(few, default=ENOUGH_RUNS)
    return [{**document, "verdict": judged([
        *(reason for reason in document["verdict"]["reasons"] if not _is_few(reason)),
        *few_repeats(repeats[_repetition_key(document)])],
        notes=document["verdict"].get("notes", ()), withheld=document["verdict"].get("withheld", ()))}
        for document in documents]


def _is_few(reason: Reason) -> bool:
    return reason.get("code") == "few_runs"


def distinct(labels: Sequence[str], paths: Sequence[str | Path]) -> list[str]:
    """Equal labels get the names of their directories, and numbers if these are equal too."""
    unique = [f"{label} ({Path(path).name})" if labels.count(label) > 1 else label
              for label, path in zip(labels, paths, strict=True)]
    return [f"{label} #{index}" if unique.count(label) > 1 else label for index, label in enumerate(unique, 1)]


def _verdict(named: _Named) -> Verdict:
    """Each reason once, with the labels of its tests, and without their steps."""
    def words(text: str, tests: list[str]) -> str:
        return f"{text} [{'all' if len(tests) == len(named) > 1 else ', '.join(tests)}]"

    verdict = merged_by_name([(label, document["verdict"]) for label, document in named.items()], words,
                             parameter_differences(named))
    return {**verdict, "reasons": [{**reason, "steps": []} for reason in verdict["reasons"]]}


def parameter_differences(named: _Named) -> Iterator[Reason]:
    """With different parameters the figures do not compare the drives alone."""
    settings = {"quick": {label: str(document["quick"]) for label, document in named.items()},
                "scale": {label: parameter_words(document["scale"]) for label, document in named.items()}}
    for name in dict.fromkeys(name for document in named.values() for name in document["parameters"]):
        settings[name] = {
            label: document["parameters_text"].get(name) or parameter_words(document["parameters"].get(name))
            for label, document in named.items()}
    for name in dict.fromkeys(name for document in named.values() for name in document.get("inputs", {})):
        settings[name] = {label: document.get("inputs", {}).get(name, "as usual") for label, document in named.items()}
    for name, values in settings.items():
        if len(set(values.values())) > 1:
            texts = ", ".join(f"{value} [{label}]" for label, value in values.items())
            yield step_reason("parameters_differ", "qualified", f"{name.replace('_', ' ')} is not the same: {texts}")


def _tables(named: _Named) -> list[FigureTable]:
    titles = dict.fromkeys(table["title"] for document in named.values() for table in document["tables"])
    return [table for title in titles if (table := _merged_table(named, title))]


def _merged_table(named: _Named, title: str) -> FigureTable | None:
    """Rows with the same first cell follow each other."""
    columns: dict[str, ColumnHead] = {}
    rows: dict[tuple[str, int], list[Figures]] = {}
    for label, document in named.items():
        table = next((table for table in document["tables"] if table["title"] == title), None)
        if table is None or not table["rows"]:
            continue
        head, *further_columns = table["columns"]
        columns |= {column["key"]: column for column in further_columns}
        count: dict[str, int] = {}
        text = text_table(table)
        for row, cells in zip(table["rows"], text.rows, strict=True):
            first = cells[0].text
            key = (first, count.setdefault(first, 0))
            count[first] += 1
            # A row of text, such as a mean of the others, has no unit.
            words = f"{first} {'' if isinstance(row.get(head['key']), str) else text.heads[0][1]}".strip()
            rows.setdefault(key, []).append({**row, "of": f"{words} · {label}" if words else label})
    if not rows:
        return None
    return {"title": title, "columns": [{"key": "of", "title": head["title"], "unit": ""}, *columns.values()],
            "rows": [{"of": row["of"], **{key: row.get(key) for key in columns},
                      **({"why": row["why"]} if "why" in row else {})} for group in rows.values() for row in group]}


def _tests(named: _Named) -> list[dict[str, Any]]:
    """Each test with its figures and series, its label, and `entry`: the drive of which it is a repetition."""
    groups = grouped((_repetition_key(document), label) for label, document in named.items())
    entries: dict[str, str] = {}
    for (label, _), labels in groups.items():
        is_unique = sum(key[0] == label for key in groups) == 1
        entries |= dict.fromkeys(labels, label if label and is_unique else labels[0])
    return [{"label": label, "entry": entries[label], **{key: cast(Figures, document)[key] for key in _TEST_KEYS}}
            for label, document in named.items()]


def _repetition_key(test: Results) -> tuple[str, str]:
    """Equal for repetitions of one test on one drive."""
    drive = test["drive"]
    key = [test.get("units") or drive_units([drive]), *map(drive.get, ("model", "firmware", "size_bytes")),
           test["parameters"], test["scale"], test["quick"], test.get("inputs", {})]
    return (test["label"] or "", json.dumps(key, sort_keys=True))


def _method(named: _Named) -> list[list[str]]:
    """Each entry once, with labels if it does not hold for all tests."""
    labels = grouped(((name, text), label) for label, document in named.items() for name, text in document["method"])
    return [[name if len(tests) == len(named) else f"{name} [{', '.join(tests)}]", text]
            for (name, text), tests in labels.items()]
