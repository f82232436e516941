"""The same test on several drives, or on one at several times, side by side: results in the shape of one test's."""

import json
from pathlib import Path

from blkreel.traces.errors import UsageError

from ..verdict import judged
from .shown import parameter_words, shown


def compared(paths: list, documents: list[dict]) -> dict:
    """One document of several results of one test, for whatever shows results.

    Rows of the tables and lines of the series are of the tests in turn, by their labels. What sets the tests
    themselves apart qualifies the comparison. Raises UsageError for results of different tests.
    """
    first = documents[0]
    for path, each in zip(paths, documents, strict=True):
        if (each["test"], each["report"]) != (first["test"], first["report"]):
            raise UsageError(f"{paths[0]} is the test {first['test']}, {path} is {each['test']}",
                             "compare results of one test")
    labels = distinct([each["label"] or Path(path).name for path, each in zip(paths, documents, strict=True)], paths)
    named = dict(zip(labels, documents, strict=True))
    return {
        **{key: value for key, value in first.items() if key not in ("path", "series")}, "kind": "test comparison",
        "label": " and ".join(labels), "drive": {}, "labels": labels,
        "started_at": None, "ended_at": None, "quick": any(each["quick"] for each in documents),
        "verdict": judged([*_reasons(named), *_differences(named)]),
        "figures": {label: each["figures"] for label, each in named.items()},
        "tables": _tables(named), "method": _method(named), "tests": _tests(named),
        "missing": [{**one, "title": f"{label}: {one['title']}"} for label, each in named.items()
                    for one in each["missing"]],
    }


def distinct(labels: list[str], paths: list) -> list[str]:
    """Labels that tell the tests apart: by the names of their directories where they were given the same."""
    told = [f"{label} ({Path(path).name})" if labels.count(label) > 1 else label
            for label, path in zip(labels, paths, strict=True)]
    return [f"{label} #{index}" if told.count(label) > 1 else label for index, label in enumerate(told, 1)]


def _reasons(named):
    """Each reason once, with the tests it holds for."""
    found = {}
    for label, each in named.items():
        for reason in each["verdict"]["reasons"]:
            found.setdefault((reason["level"], reason["text"]), []).append(label)
    for (level, text), labels in found.items():
        whose = "all" if len(labels) == len(named) > 1 else ", ".join(labels)
        yield {"level": level, "text": f"{text} [{whose}]", "steps": []}


def _differences(named):
    """What was not the same: such figures do not compare the drives alone."""
    told = {"quick": {label: str(each["quick"]) for label, each in named.items()},
            "scale": {label: parameter_words(each["scale"]) for label, each in named.items()}}
    for name in dict.fromkeys(name for each in named.values() for name in each["parameters"]):
        told[name] = {label: each["parameters_shown"].get(name) or parameter_words(each["parameters"].get(name))
                      for label, each in named.items()}
    for name, values in told.items():
        if len(set(values.values())) > 1:
            shown_as = ", ".join(f"{value} [{label}]" for label, value in values.items())
            yield {"level": "qualified", "text": f"{name.replace('_', ' ')} is not the same: {shown_as}", "steps": []}


def _tables(named):
    merged = []
    for title in dict.fromkeys(table["title"] for each in named.values() for table in each["tables"]):
        columns, rows, order = {}, {}, []
        for label, each in named.items():
            table = next((one for one in each["tables"] if one["title"] == title), None)
            if table is None or not table["rows"]:
                continue
            head, *others = table["columns"]
            columns |= {column["key"]: column for column in others}
            times = {}
            for row, cells in zip(table["rows"], shown(table).rows, strict=True):
                unit = shown(table).heads[0][1]
                key = (cells[0].text, times.setdefault(cells[0].text, 0))
                times[cells[0].text] += 1
                if key not in rows:
                    order.append(key)
                # A row of text, such as a mean of the others, is in no unit.
                words = f"{cells[0].text} {'' if isinstance(row.get(head['key']), str) else unit}".strip()
                rows.setdefault(key, []).append({**row, "of": f"{words} · {label}" if words else label})
        if rows:
            keys = list(columns)
            merged.append({
                "title": title,
                "columns": [{"key": "of", "title": head["title"], "unit": ""}, *columns.values()],
                "rows": [{"of": row["of"], **{key: row.get(key) for key in keys},
                          **({"why": row["why"]} if "why" in row else {})} for key in order for row in rows[key]]})
    return merged


def _tests(named):
    """Each test with its figures and series, its own label, and `entry`: the drive that it is a repetition of."""
    groups = {}
    for label, each in named.items():
        groups.setdefault(_same(each), []).append(label)
    entries = {}
    for (given, *_), labels in groups.items():
        alone = sum(key[0] == given for key in groups) == 1
        entries |= dict.fromkeys(labels, given if given and alone else labels[0])
    kept = ("path", "drive", "quick", "scale", "started_at", "ended_at", "seed", "parameters", "verdict", "figures",
            "series", "missing")
    return [{"label": label, "entry": entries[label], **{key: each[key] for key in kept}}
            for label, each in named.items()]


def _same(test):
    """What tests have in common that are repetitions of one."""
    drive = test["drive"]
    unit = drive.get("serial_hash") or [drive.get(key) for key in ("path", "model", "firmware", "size_bytes")]
    return (test["label"] or "", json.dumps([unit, test["parameters"], test["scale"], test["quick"]], sort_keys=True))


def _method(named):
    """What holds for all stands once; the others with their labels."""
    told = {}
    for label, each in named.items():
        for name, text in each["method"]:
            told.setdefault((name, text), []).append(label)
    return [[name if len(labels) == len(named) else f"{name} [{', '.join(labels)}]", text]
            for (name, text), labels in told.items()]
