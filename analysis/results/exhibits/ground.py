"""What every kind of report stands on: its drives and states, and the exhibits that all of them have."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from ...exhibits.model import Column, Exhibit, Table
from ...ranking import pairs, ranked
from ...verdict import ENOUGH_RUNS
from .dots import dots
from .drawing import Apart, Axis
from .scatter import scatter
from .subjects import Subject, Value
from .tables import Figure, Place, figure_table, plain

MB_S = Axis("throughput", "MB/s", "auto")
TIED = "Drives on one shade share a rank: the interval of their ratio holds 1, or they are under 2 % apart."
POWER = [Figure("average_w", "Power", "number", "W", "joules / time in which it was active"),
         Figure("mb_per_j", "Efficiency", "number", "MB/J", "bytes read and written / joules, the same as MB/s/W",
                "higher")]


@dataclass(frozen=True)
class Ground:
    """subjects: the drives of the page, in order."""

    subjects: tuple[Subject, ...]

    @property
    def several(self) -> bool:
        return len(self.subjects) > 1

    def apart(self, lines=()) -> Apart:
        return Apart(tuple(subject.key for subject in self.subjects),
                     {subject.key: subject.name for subject in self.subjects}, tuple(lines))

    def states(self) -> list[str]:
        """Of all drives, in the order in which they were measured."""
        return list(dict.fromkeys(state for subject in self.subjects for state in subject.states()))

    def named(self, id_: str, state: str) -> str:
        """An exhibit's id: with the state where there are several."""
        return f"{id_}-{slug(state)}" if len(self.states()) > 1 and state else id_

    def titled(self, title: str, state: str) -> str:
        return f"{title}, state {state}" if state and len(self.states()) > 1 else title

    def places(self, *base, labels: dict | None = None) -> list[Place]:
        """A row for each drive that has anything there."""
        return [Place(subject, base, labels or {}) for subject in self.subjects if subject.holds(*base)]

    def between(self, *ends: tuple) -> list[dict]:
        """Rows of a slope chart, from one figure to the next: of the drives that have all of them."""
        rows = []
        for subject in self.subjects:
            values = [subject.value(*path).value for path in ends]
            if None not in values:
                rows += [{"entry": subject.key, "x": index, "y": value} for index, value in enumerate(values)]
        return rows

    def repetitions_note(self, values) -> list[str]:
        """values: of the figure, for each drive."""
        known = [value for value in values if value.value is not None]
        if not known:
            return []
        several = any(value.n > 1 for value in known)
        if all(value.low is not None for value in known):
            return ["The whisker is the 95 % t interval on the logarithm, over repetitions."]
        if any(value.low is not None for value in known):
            return [f"Thick whiskers are 95 % intervals; with fewer than {ENOUGH_RUNS} repetitions there is none, and "
                    "a thin line is the range of those there are."]
        return [f"With fewer than {ENOUGH_RUNS} repetitions there is no interval: the order is what was seen once, not "
                "yet a finding." + (" The thin line is the range of the repetitions." if several else "")]

    def without(self, found: set[str], what: str) -> list[str]:
        """A note that names the drives without this."""
        gone = [subject.key for subject in self.subjects if subject.key not in found]
        return [f"Without {what}: {', '.join(gone)}."] if gone and found else []


def ranks_of(values: dict[str, Value], higher: bool) -> dict[str, int]:
    """key -> rank, from 1, of the drives that have a value. Where each was repeated often enough, drives that nothing
    tells apart share one (analysis.ranking); otherwise the order is what was seen, and only equal figures do."""
    known = {key: value for key, value in values.items() if value.value is not None}
    if len(known) > 1 and all(value.low is not None for value in known.values()):
        runs = {key: list(value.each) for key, value in known.items()}
        differ = {frozenset((pair.base, pair.other)) for pair in pairs({"figure": runs}) if pair.differ}
        return {key: place.rank for key, place in ranked(runs, differ, higher).items() if place.rank is not None}
    return {key: 1 + sum(other.value > value.value if higher else other.value < value.value
                         for other in known.values()) for key, value in known.items()}


def slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", str(words).lower()).strip("-") or "all"


def ranking(ground: Ground, id_: str, title: str, axis: Axis, parts: list[tuple], table: Table, *, better: str,
            form: str, unit: str = "", lead: int = 0, leads: Callable | None = None, told: Callable | None = None,
            text: str = "", notes: tuple = ()) -> Exhibit | None:
    """Drives by a figure, a dot for each part. parts: (name, path of the figure or a function of a drive that gives
    it); `lead` is the part whose value orders, or leads(subject) the path of what does. told(subject): what stands at
    the right; the values where there is none.

    None where no drive has any of it, and there is no reason to tell either.
    """
    rows, orders, found = [], {}, set()
    for subject in ground.subjects:
        values = [subject.value(*(path(subject) if callable(path) else path)) for _, path in parts]
        known = [(name, value) for (name, _), value in zip(parts, values, strict=True) if value.value is not None]
        if not known:
            continue
        found.add(subject.key)
        orders[subject.key] = subject.value(*leads(subject)) if leads else values[lead]
        words = told(subject) if told else _joined([value.value for _, value in known], form, unit)
        for name, value in known:
            rows.append({"entry": subject.key, "part": name, "value": value.value, "told": words, **value.whisker,
                         "span": "" if value.n < 2 else f"n={value.n}"})
    ranks = ranks_of(orders, better == "higher")
    sign = -1 if better == "higher" else 1
    order = sorted(orders, key=lambda key: (ranks.get(key, len(orders) + 1), sign * (orders[key].value or 0)))
    sure = [rank for rank in ranks.values() if all(value.low is not None for value in orders.values())]
    for row in rows:
        row |= {"order": order.index(row["entry"]), "rank": ranks[row["entry"]] if sure else None}
    rows.sort(key=lambda row: row["order"])
    names = tuple(name for name, _ in parts if any(row["part"] == name for row in rows))
    spec = None
    if ground.several or len(names) > 1:  # a single dot says no more than its figure
        spec = dots(f"{title}, by drive; {better} is better", rows, ground.apart(), axis, names or ("",))
    if not rows and not any(row.why for row in table.rows):
        return None
    said = [*notes, *([TIED] if len(set(sure)) < len(sure) and spec else []),
            *(ground.repetitions_note(orders.values()) if ground.several else ()),
            *ground.without(found, "this figure")]
    return Exhibit(id_, title, table, spec, better, text, tuple(said))


def _joined(values, form, unit):
    """Several values in a row; what they share of a unit stands once, behind the last."""
    words = [plain(value, form, unit) for value in values]
    ends = {word.partition(" ")[2] for word in words}
    if len(ends) == 1:
        words[:-1] = [word.partition(" ")[0] for word in words[:-1]]
    return " · ".join(words)


def efficiency(ground: Ground, id_: str, title: str, points: list[tuple], *, text: str = "") -> Exhibit | None:
    """MB/J against MB/s. points: (line, base, key of the rate); power stands beside the rate."""
    rows, places, lines = [], [], list(dict.fromkeys(line for line, _, _ in points))
    rate_key = points[0][2] if points else "mb_s"
    for subject in ground.subjects:
        for line, base, key in points:
            rate, worth = subject.value(*base, key), subject.value(*base, "mb_per_j")
            if rate.value is not None and worth.value is not None:
                rows.append({"entry": subject.key, "line": line, "x": rate.value, "y": worth.value})
                places.append(Place(subject, base, {"of": line}))
    if not rows:
        return None
    figures = [Figure(rate_key, "Throughput", "rate", "", "bytes / time", "higher"), *reversed(POWER)]
    table = plain_table(title, places, figures)
    spec = scatter(f"{title}: megabytes a joule against megabytes a second", rows, ground.apart(lines), MB_S,
                   Axis("efficiency", "MB/J", "auto"))
    return Exhibit(id_, title, table, spec, "higher",
                   text or "To the right is faster, further up takes less energy for the same bytes.",
                   tuple(ground.without({row["entry"] for row in rows}, "power")))


def plain_table(caption: str, places: list[Place], figures: list[Figure]) -> Table:
    """Of places that lie anywhere: the row's label `of` says where, and its key stands in a column of its own."""
    keyed = [Place(place.subject, place.base, {**place.labels, "key": ".".join(map(str, place.base))}, place.group)
             for place in places]
    return figure_table(caption, keyed, figures, ("{key}",), (Column("of", "Of"), Column("key", "Figures below")))
