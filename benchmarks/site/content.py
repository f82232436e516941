"""What a site shows of a catalog: its results by conditions and drives."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from blkreel.analysis.metrics.definitions.metric import Better, Metric
from blkreel.analysis.metrics.definitions.registry import metric_of
from blkreel.analysis.report.drives_file import Drive, DrivesFile
from blkreel.analysis.report.workloads import Score
from blkreel.analysis.stats.intervals import geometric_mean
from blkreel.analysis.stats.ranking import places_by_value
from blkreel.analysis.stats.relative import RelativePerformance, on_every_workload, relative_to
from blkreel.common.binning import grouped

MOST_COLUMNS = 10  # conditions of the overview
_SLUG_LETTERS = 48

Row = Mapping[str, Any]  # of the table of results


@dataclass(frozen=True)
class Standing:
    """A drive under one condition. value: geometric mean of its results that are not invalid. rows: of these, the
    newest last. place: from 1, by value. relative: to the best drive."""

    label: str
    value: float
    rows: tuple[Row, ...]
    place: int
    relative: RelativePerformance

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(float(row["headline_value"]) for row in self.rows)


@dataclass(frozen=True)
class Condition:
    """What comparable results have in common. score: their values, as a comparison has them. detail: pace and state in
    words, and other inputs if conditions differ in them alone. standings: the best first."""

    key: tuple[str, ...]
    score: Score
    detail: str
    simulated: bool
    metric: Metric
    standings: tuple[Standing, ...]

    @cached_property
    def slug(self) -> str:
        return slug(self.title, self.key)

    @property
    def title(self) -> str:
        return self.score.title

    @cached_property
    def by_drive(self) -> dict[str, Standing]:
        return {standing.label: standing for standing in self.standings}

    def of(self, label: str) -> Standing | None:
        return self.by_drive.get(label)


@dataclass(frozen=True)
class SiteDrive:
    """rows: all results of its label, the newest last, of one unit or of several. from_file: its entry in drives.toml.
    overall: None without a result under each condition of the overview."""

    label: str
    rows: tuple[Row, ...]
    from_file: Drive | None
    facts: Mapping[str, Any]
    overall: RelativePerformance | None = None
    place: int | None = None

    @cached_property
    def slug(self) -> str:
        return slug(self.label, (self.label,))

    @property
    def capacity_bytes(self) -> int | None:
        capacity: int | None = self.rows[-1]["capacity_bytes"]
        return capacity

    @property
    def price(self) -> float | None:
        return self.from_file.price if self.from_file else None


@dataclass(frozen=True)
class Content:
    """conditions: by number of drives. columns: those of the overview. drives: by overall performance, those without
    last. results: id -> row, the newest last. metrics: id -> rows of the table of metrics, of the newest usable result
    of each drive under each condition. left_out: why -> number of results."""

    conditions: tuple[Condition, ...]
    columns: tuple[Condition, ...]
    drives: tuple[SiteDrive, ...]
    results: Mapping[str, Row]
    metrics: Mapping[str, Sequence[Row]]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def currencies(self) -> tuple[str, ...]:
        """Of all prices. Prices in several cannot be compared."""
        return tuple(sorted({drive.from_file.currency for drive in self.drives
                             if drive.from_file and drive.from_file.price is not None}))

    @property
    def compared_workloads(self) -> int:
        """Number of workloads and paces that could be columns of the overview."""
        return len({condition.key[:3] for condition in self.conditions
                    if condition.simulated == self.columns[0].simulated})

    def conditions_of(self, label: str) -> list[tuple[Condition, Standing]]:
        return [(condition, own) for condition in self.conditions if (own := condition.of(label))]


def slug(name: str, key: Iterable[str]) -> str:
    """The name of a file: letters of the name, and a hash that tells names apart whose letters are the same."""
    letters = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_SLUG_LETTERS].strip("-")
    return f"{letters or 'x'}-{hashlib.sha256(repr(tuple(key)).encode()).hexdigest()[:8]}"


def content_of(results: Sequence[Row], metrics: pa.Table, drives_file: DrivesFile | None = None) -> Content:
    """results: rows of the table of results of a catalog. metrics: its table of metrics (docs/catalog.md)."""
    left_out: Counter[str] = Counter()
    rows = sorted(results, key=lambda row: (row["started_at"] or "", row["id"]))
    newest = {(*_key(row), row["headline"], row["label"]): row["id"] for row in rows if _is_usable(row)}
    by_result = _metrics_of(metrics, newest.values())
    groups = grouped((_key(row), row) for row in rows if row["workload"])
    if unknown := sum(not row["workload"] for row in rows):
        left_out["of an unknown workload"] = unknown
    conditions = [*filter(None, (_condition(key, group, by_result, left_out) for key, group in groups.items()))]
    shared = Counter(condition.key[:-1] for condition in conditions)
    conditions = [replace(condition, detail=f"{condition.detail} · {condition.key[-1] or 'as usual'}")
                  if shared[condition.key[:-1]] > 1 else condition for condition in conditions]
    conditions.sort(key=lambda condition: (-len(condition.standings), condition.title, condition.key))
    columns = _columns(conditions)
    by_drive = grouped((row["label"], row) for row in rows)
    drives = [_drive(label, own, drives_file) for label, own in by_drive.items()]
    return Content(tuple(conditions), columns, _ordered(drives, columns), {row["id"]: row for row in rows}, by_result,
                   +left_out)


def _key(row: Row) -> tuple[str, ...]:
    """Equal for repetitions on one drive, and for results of several drives that the site compares."""
    return (row["kind"], row["workload"], row["pace"], row["state"], "simulated" if row["simulated"] else "real",
            row["condition"])


def _is_usable(row: Row) -> bool:
    return row["verdict"] != "invalid" and bool(row["headline"]) and (row["headline_value"] or 0) > 0


def _metrics_of(table: pa.Table, ids: Iterable[str]) -> dict[str, list[Row]]:
    """The metrics of these results, by id: a catalog of 10,000 results has half a million."""
    table = table.filter(pc.is_in(table["id"].cast("string"), value_set=pa.array(list(ids), "string")))
    names = ("key", "value", "unit", "better")
    return grouped((id_, dict(zip(names, values, strict=True)))
                   for id_, *values in zip(*(table[name].to_pylist() for name in ("id", *names)), strict=True))


def _condition(key: tuple[str, ...], rows: Sequence[Row], metrics: Mapping[str, Sequence[Row]],
               left_out: Counter[str]) -> Condition | None:
    usable = []
    for row in rows:
        if _is_usable(row):
            usable.append(row)
        else:
            left_out["invalid" if row["verdict"] == "invalid" else "without a positive headline metric"] += 1
    if not usable:
        return None
    headline, symbol = Counter((row["headline"], row["headline_unit"]) for row in usable).most_common(1)[0][0]
    left_out["with another headline metric"] += sum(row["headline"] != headline for row in usable)
    better: Better = next((metric["better"] for row in usable for metric in metrics.get(row["id"], ())
                           if metric["key"] == headline), "")
    metric = metric_of(headline, symbol or "", better)
    by_drive = grouped((row["label"], row) for row in usable if row["headline"] == headline)
    newest = rows[-1]
    detail = " · ".join(filter(None, (newest["pace"], newest["state"], "simulated" if newest["simulated"] else "")))
    score = Score(newest["workload_title"] or newest["workload_name"], metric.title, better == "higher",
                  metric.unit.text,
                  {label: [float(row["headline_value"]) for row in by_drive[label]] for label in sorted(by_drive)})
    return Condition(key, score, detail, bool(newest["simulated"]), metric, _standings(score, by_drive))


def _standings(score: Score, by_drive: Mapping[str, Sequence[Row]]) -> tuple[Standing, ...]:
    values = {label: geometric_mean(runs) for label, runs in score.runs.items()}
    places = places_by_value(values, score.higher_is_better)
    relative = relative_to([score], next(iter(places)))
    return tuple(Standing(label, value, tuple(by_drive[label]), place, relative[label])
                 for label, place in places.items() if (value := values[label]) is not None)


def _columns(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """Of each workload and pace the condition with most drives; real drives or simulated ones, whichever are more.

    Only drives with a result under each condition are ranked: one that would leave fewer than two of them, or fewer
    than half of those of the first condition, is left out.
    """
    of_simulated: Counter[bool] = Counter()
    for condition in conditions:
        of_simulated[condition.simulated] += len(condition.standings)
    simulated = of_simulated[True] > of_simulated[False]
    chosen: dict[tuple[str, ...], Condition] = {}
    for condition in conditions:
        if condition.simulated == simulated:
            chosen.setdefault(condition.key[:3], condition)
    columns: list[Condition] = []
    for condition in chosen.values():
        ranked = len(on_every_workload([column.score for column in (*columns, condition)]))
        drives = len((columns or [condition])[0].standings)
        if drives == 1 or (ranked > 1 and 2 * ranked >= drives):
            columns.append(condition)
    return tuple(columns[:MOST_COLUMNS])


def _drive(label: str, rows: list[Row], drives_file: DrivesFile | None) -> SiteDrive:
    newest, units = rows[-1], {row["unit"] for row in rows} - {""}

    def all_of(column: str) -> str:
        return ", ".join(dict.fromkeys(row[column] for row in rows if row[column]))

    facts: dict[str, Any] = {"model": all_of("model"), "firmware": all_of("firmware"),
                             "units": str(len(units)) if len(units) > 1 else "",
                             "interface": all_of("interface"), "kind": all_of("drive_kind")}
    from_file = drives_file.find(label, newest["model"] or "") if drives_file else None
    if drives_file:
        facts |= drives_file.facts(label, newest["model"] or "")
    return SiteDrive(label, tuple(rows), from_file, {name: value for name, value in facts.items() if value})


def _ordered(drives: Sequence[SiteDrive], columns: Sequence[Condition]) -> tuple[SiteDrive, ...]:
    """With overall performance relative to the best drive."""
    scores = [column.score for column in columns]
    overall: dict[str, RelativePerformance] = {}
    if whole := on_every_workload(scores):
        relative = relative_to(scores, whole[0])
        overall = relative_to(scores, max(relative, key=lambda label: (relative[label].value, label)))
    ordered = sorted(drives, key=lambda drive: (-overall[drive.label].value if drive.label in overall else 1,
                                                drive.label))
    places = places_by_value({label: relative.value for label, relative in overall.items()}, higher_is_better=True)
    return tuple(replace(drive, overall=overall.get(drive.label), place=places.get(drive.label)) for drive in ordered)
