"""What a document of results is made of: tables, series, figures over repeats."""

import math
from dataclasses import dataclass, field


@dataclass
class Content:
    """What one kind of report gives. method: (name, text). reasons: {"level", "text"} that only the results show."""

    figures: dict = field(default_factory=dict)
    tables: list[dict] = field(default_factory=list)
    series: list[dict] = field(default_factory=list)
    method: list[tuple[str, str]] = field(default_factory=list)
    reasons: list[dict] = field(default_factory=list)


def table(title: str, columns: list[tuple[str, str, str]], rows: list[dict]) -> dict:
    """columns: (key, title, unit). A row may hold `why`: {key: why there is no value}. Columns of which no row knows
    anything are left out, but the reason for a missing value is worth a column."""
    shown = [column for column in columns
             if any(row.get(column[0]) is not None or column[0] in row.get("why", {}) for row in rows)]
    keys = [key for key, _, _ in shown]
    kept = []
    for row in rows:
        values = {key: row.get(key) for key in keys}
        why = {key: text for key, text in row.get("why", {}).items() if key in values and values[key] is None}
        kept.append({**values, **({"why": why} if why else {})})
    return {"title": title, "columns": [{"key": key, "title": name, "unit": unit} for key, name, unit in shown],
            "rows": kept}


def series(title: str, x: tuple[str, str], y: tuple[str, str], lines: list[tuple[str, list, list]], **of) -> dict:
    """x, y: (title, unit). lines: (name, x values, y values). of: what it shows, for whoever draws it: what="rate",
    state, role, ..., and what else of it a chart needs."""
    return {"title": title, "of": of, "x": {"title": x[0], "unit": x[1]}, "y": {"title": y[0], "unit": y[1]},
            "lines": [{"name": name, "x": [_shortened(value, 10) for value in xs],
                       "y": [_shortened(value, 6) for value in ys]} for name, xs, ys in lines]}


def _shortened(value, digits):
    """As exact as any chart can draw: a series is for the eye, and long. Figures are not rounded."""
    return value if value is None or isinstance(value, int) else float(f"{float(value):.{digits}g}")


def by_state(found: list) -> dict[str, list]:
    """(step, what was measured) by the label `state` of the step: states are never pooled, as repeats are."""
    states = {}
    for step, measured in found:
        states.setdefault(str(step.labels.get("state", "")), []).append((step, measured))
    return states


def in_state(title: str, state: str) -> str:
    """A title that says of which state its table or chart is."""
    return f"{title}, state {state}" if state else title


def over_repeats(key: str, values: list) -> dict:
    """{key: geometric mean, key_smallest, key_largest, key_repeats: each value} of one figure over repeats; of one
    repeat, its value alone."""
    if len(values) == 1:
        return {key: values[0]}
    known = [value for value in values if value is not None]
    return {key: geometric_mean(values), f"{key}_smallest": min(known) if known else None,
            f"{key}_largest": max(known) if known else None, f"{key}_repeats": list(values)}


def with_spread(columns: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Each column, and behind it those of the smallest and largest repeat, which `table` leaves out where n=1."""
    return [each for key, title, unit in columns
            for each in ((key, title, unit), (f"{key}_smallest", "least", unit), (f"{key}_largest", "most", unit))]


def geometric_mean(values: list) -> float | None:
    """None where a value is unknown, or is no positive number."""
    if not values or any(value is None or value <= 0 for value in values):
        return None
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def ratio(numerator, denominator) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None
