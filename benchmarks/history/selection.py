"""Which results of a catalog make one series: those of one workload on one drive, in one state at one pace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blkreel.common.errors import UsageError, did_you_mean

Row = Mapping[str, Any]  # of Catalog.result_table()
_CHECKSUM_DIGITS = 6  # of a workload, fewest
_LISTED_DIGITS = 12  # of a checksum or a hash
COLUMNS = ("unit", "pace", "state", "condition", "host", "firmware", "kernel")  # that a selection may name
# What results of one series have in common, and the option that selects it.
_SAME = (("workload", "its checksum as WORKLOAD", "workloads"), ("model", "--drive", "models"),
         ("unit", "--where unit=HASH", "units"), ("capacity_bytes", "--drive", "capacities"),
         ("pace", "--where pace=TEXT", "paces"), ("state", "--where state=TEXT", "states"),
         ("condition", "--where condition=TEXT", "kinds of inputs"))


@dataclass(frozen=True)
class Selection:
    """workload: title, name or beginning of the checksum. drives: label, model, firmware or unit, any of them. where:
    of COLUMNS. Each a whole text or a part of it."""

    workload: str
    drives: tuple[str, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Selected:
    """rows: in order of their dates. left_out: why -> number of results. notices: what else differs between them."""

    rows: tuple[Row, ...]
    left_out: Mapping[str, int]
    notices: tuple[str, ...]


def selected(rows: Sequence[Row], selection: Selection, by: str = "date") -> Selected:
    """The results of a selection that may be compared with each other: neither invalid nor without a date.

    by: "date", or "firmware" or "kernel", whose versions are compared: a notice says if the other one differs too.
    Raises UsageError if there are none, and if they differ in more than date, firmware and kernel, with the option
    that selects some.
    """
    chosen = _of_workload(rows, selection.workload)
    if selection.drives:
        named = [_named(chosen, drive, ("label", "model", "firmware", "unit"), "--drive") for drive in selection.drives]
        ids = {row["id"] for rows_of_drive in named for row in rows_of_drive}
        chosen = [row for row in chosen if row["id"] in ids]
    for column, text in selection.where.items():
        chosen = _named(chosen, text, (column,), f"--where {column}=")
    for column, remedy, words in _SAME:
        values = {row[column] for row in chosen}
        if len(values) > 1:
            texts = {_text(row, column) for row in chosen}
            raise UsageError(f"the results have {len(values)} {words}: {_listed(texts)}", f"choose one by {remedy}")
    left_out = {"invalid": 0, "without a date": 0}
    usable = []
    for row in chosen:
        if row["verdict"] == "invalid":
            left_out["invalid"] += 1
        elif row["started_at"] is None:
            left_out["without a date"] += 1
        else:
            usable.append(row)
    counts = {why: count for why, count in left_out.items() if count}
    if not usable:
        raise UsageError("no result is left: " + ", ".join(f"{count} {why}" for why, count in counts.items()),
                         "list them: blkreel results list")
    return Selected(tuple(sorted(usable, key=lambda row: (row["started_at"], row["id"]))), counts, _notices(usable, by))


def _of_workload(rows: Sequence[Row], words: str) -> list[Row]:
    by_checksum = [row for row in rows
                   if len(words) >= _CHECKSUM_DIGITS and row["workload"].startswith(words.casefold())]
    return by_checksum or _named(rows, words, ("workload_title", "workload_name"), "WORKLOAD")


def _named(rows: Sequence[Row], words: str, columns: tuple[str, ...], option: str) -> list[Row]:
    """Rows with this text in a column, or else those with a text that has these words."""
    for column in columns:
        if whole := [row for row in rows if row[column] == words]:
            return whole
    chosen = [row for row in rows if any(words.casefold() in (row[column] or "").casefold() for column in columns)]
    if not chosen:
        texts = {text for row in rows for text in (row[column] for column in columns[:2]) if text}
        raise UsageError(f"{option}{'' if option.endswith('=') else ' '}{words}: no result has it",
                         did_you_mean(words, texts, f"use one of: {_listed(texts)}"))
    return chosen


def _text(row: Row, column: str) -> str:
    if column == "workload":
        return f"{row['workload_title']} ({row['workload'][:_LISTED_DIGITS]})"
    return row[column][:_LISTED_DIGITS] if column == "unit" else str(row[column] or "")


def _notices(rows: Sequence[Row], by: str) -> tuple[str, ...]:
    labels = {row["label"] for row in rows if not row["unit"]}
    notices = [f"results of {len(labels)} labels without a serial: {_listed(labels)}; these may be several drives"
               ] if len(labels) > 1 else []
    for column, words in (("host", "hosts"), ("firmware", "firmware versions"), ("kernel", "kernels")):
        values = {row[column] for row in rows}
        if len(values) > 1 and column != by and (column == "host" or by != "date"):
            notices.append(f"results of {len(values)} {words}: {_listed(values)}; these can change a metric too")
    return tuple(notices)


def _listed(values: set[Any]) -> str:
    texts = sorted(str(value) or "none" for value in values)
    return ("; " if any("," in text for text in texts) else ", ").join(texts)
