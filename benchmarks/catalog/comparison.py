"""Which results of a catalog join a comparison, and why the others do not.

Two results are comparable if their conditions allow it (traces/format/condition.py), if they have the same state and
limits of fidelity, and if both are of real drives or both of simulated ones. Tests are comparable if name, parameters,
inputs, scale and shortening are the same.
New results decide what that is; without any, the largest group of each workload and pace does.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from blkreel.analysis.metrics.measure import Measured
from blkreel.analysis.report import document
from blkreel.analysis.report.columns import state_name
from blkreel.benchmarks.results.document import Results
from blkreel.common.errors import UsageError
from blkreel.common.units import counted
from blkreel.traces.format.condition import Condition, Role, workload_checksum

from .catalog import Catalog
from .collect import identity_of, test_checksum
from .result import CatalogError, id_of
from .stored import StoredRun
from .tables import matching, read_hashed_result, read_result

# reason -> words behind a number of results
REASONS = {
    "workload": "of another workload", "pace": "at another pace", "state": "in another state",
    "condition": "with other inputs", "drive_kind": "of simulated drives beside real ones, or the reverse",
    "parameters": "with other parameters",
    "fidelity_limits": "judged by other limits of fidelity", "unreadable": "unreadable",
}
_COLUMNS = ["id", "kind", "label", "workload", "workload_name", "pace", "state", "simulated", "started_at"]
_Row = Mapping[str, Any]


@dataclass(frozen=True)
class LeftOut:
    """reason: a key of REASONS. text: what the result has instead, or the error."""

    id: str
    label: str
    reason: str
    text: str


@dataclass
class Joined:
    """runs, tests: of the catalog, to be compared with the new ones. notes: for the reader of the comparison."""

    catalog: Catalog
    runs: list[Measured] = field(default_factory=list)
    tests: list[tuple[Path, Results]] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        counts = Counter(omission.reason for omission in self.left_out)
        return {"directory": str(self.catalog.directory), "joined": len(self.runs) + len(self.tests),
                "left_out": [{"reason": reason, "text": words, "results": counts[reason],
                              "ids": [omission.id for omission in self.left_out if omission.reason == reason]}
                             for reason, words in REASONS.items() if counts[reason]]}

    def lines(self, why: bool) -> list[str]:
        """For the terminal. why: name each result that was left out."""
        counts = Counter(omission.reason for omission in self.left_out)
        words = ", ".join(f"{counts[reason]:,} {text}" for reason, text in REASONS.items() if counts[reason])
        lines = [f"{self.catalog.directory}: {counted(len(self.runs) + len(self.tests), 'result')} joined"
                 + (f"; left out: {words}" + ("" if why else " (--why)") if words else "")]
        if why:
            lines += [f"  {omission.id[:12]}  {omission.label}: {REASONS[omission.reason]} ({omission.text})"
                      for omission in self.left_out]
        return lines


def join(catalog: Catalog, new_runs: Sequence[Measured] = (), new_tests: Sequence[tuple[Path, Results]] = (),
         drives: Sequence[str] = (), workloads: Sequence[str] = ()) -> Joined:
    """The results of a catalog that are comparable with the new ones, or without any with each other, the oldest first.

    drives, workloads: texts of --drive and --workload. Raises UsageError if nothing of the catalog matches these.
    """
    joined = Joined(catalog)
    table = matching(catalog.result_table(), drives, workloads)
    if not table.num_rows and (drives or workloads):
        raise UsageError(f"no result of {catalog.directory} matches --drive and --workload",
                         f"list them: blkreel results list --catalog {catalog.directory}")
    joined.left_out += [LeftOut(path.stem, path.name, "unreadable", str(error))
                        for path, error in catalog.damaged.items()]
    new_ids = {id_of({"kind": "run", "records": run.identity}) for run in new_runs} | {
        id_of(identity_of(path)) for path, results in new_tests if results["figures"]}
    rows = sorted((row for row in table.select(_COLUMNS).to_pylist() if row["id"] not in new_ids),
                  key=lambda row: (row["started_at"] is None, row["started_at"] or "", row["id"]))
    if new_runs or not new_tests:
        _join_runs(joined, [row for row in rows if row["kind"] == "run"], new_runs)
    if new_tests or not new_runs:
        _join_tests(joined, [row for row in rows if row["kind"] == "test"], new_tests)
    _note_renamed(joined, new_runs)
    return joined


def _join_runs(joined: Joined, rows: list[_Row], new_runs: Sequence[Measured]) -> None:
    wanted: dict[tuple[str, str], set[tuple[str, bool]]] = {}
    if new_runs:
        for new_run in new_runs:
            workload, pace, state, simulated = _traits(new_run)
            wanted.setdefault((workload, pace), set()).add((state, simulated))
    else:
        groups: dict[tuple[str, str], Counter[tuple[str, bool]]] = {}
        for row in rows:
            groups.setdefault((row["workload"], row["pace"]), Counter())[row["state"], row["simulated"]] += 1
        wanted = {key: {counts.most_common(1)[0][0]} for key, counts in groups.items()}
    workloads = {workload for workload, _ in wanted}
    read: list[tuple[_Row, Measured]] = []
    for row in rows:
        traits = wanted.get((row["workload"], row["pace"]))
        if row["workload"] not in workloads or not row["workload"]:
            _leave_out(joined, row, "workload", row["workload_name"] or "unknown")
        elif traits is None:
            _leave_out(joined, row, "pace", row["pace"])
        elif row["state"] not in {state for state, _ in traits}:
            _leave_out(joined, row, "state", row["state"] or "unknown")
        elif (row["state"], row["simulated"]) not in traits:
            _leave_out(joined, row, "drive_kind", "simulated" if row["simulated"] else "real")
        else:
            try:
                read.append((row, StoredRun(joined.catalog, *read_hashed_result(
                    joined.catalog.path_of(row["id"])))))
            except CatalogError as error:
                _leave_out(joined, row, "unreadable", str(error))
    limits = {str(_limits(run)) for run in new_runs if _limits(run)} or {
        text for text, _ in Counter(str(_limits(run)) for _, run in read if _limits(run)).most_common(1)}
    conditions = [document.condition_of(run) for run in new_runs] or _usual_conditions([run for _, run in read])
    for row, run in read:
        own, condition = _limits(run), document.condition_of(run)
        if different := _apart(condition, conditions):
            _leave_out(joined, row, "condition", different)
        elif own and limits and str(own) not in limits:
            _leave_out(joined, row, "fidelity_limits", ", ".join(f"{key} {value:g}" for key, value in own.items()))
        else:
            joined.runs.append(run)


def _usual_conditions(runs: Sequence[Measured]) -> list[Condition]:
    """Of each workload and pace, the condition of most runs."""
    groups: dict[tuple[str, str], Counter[Condition]] = {}
    for condition in map(document.condition_of, runs):
        groups.setdefault((condition.workload, condition.pace), Counter())[condition] += 1
    return [counts.most_common(1)[0][0] for counts in groups.values()]


def _apart(condition: Condition, conditions: Sequence[Condition]) -> str:
    """What keeps a run from being compared with any of the others; "" if one of them allows it."""
    differing = [list(condition.differing(candidate, Role.APART)) for candidate in conditions]
    nearest = min(differing, key=len, default=[])
    return ", ".join(f"{name} {getattr(condition, name) or 'as usual'}" for name in nearest)


def _join_tests(joined: Joined, rows: list[_Row], new_tests: Sequence[tuple[Path, Results]]) -> None:
    wanted: dict[str, set[str]] = {}
    if new_tests:
        for _, results in new_tests:
            name = str(results["test"] or results["report"])
            wanted.setdefault(name, set()).add(test_checksum(cast(dict[str, Any], results)))
    else:
        groups: dict[str, Counter[str]] = {}
        for row in rows:
            groups.setdefault(row["workload_name"], Counter())[row["workload"]] += 1
        wanted = {name: {counts.most_common(1)[0][0]} for name, counts in groups.items()}
    for row in rows:
        if row["workload_name"] not in wanted:
            _leave_out(joined, row, "workload", row["workload_name"])
        elif row["workload"] not in wanted[row["workload_name"]]:
            _leave_out(joined, row, "parameters", row["workload_name"])
        else:
            try:
                result = read_result(joined.catalog.path_of(row["id"]))
            except CatalogError as error:
                _leave_out(joined, row, "unreadable", str(error))
                continue
            path = Path(result["path"])
            # Named by its id as well: two tests of one drive may have lain in one directory.
            joined.tests.append((path.with_name(f"{path.name} {row['id'][:8]}"), cast(Results, result["results"])))


def _leave_out(joined: Joined, row: _Row, reason: str, text: str) -> None:
    joined.left_out.append(LeftOut(row["id"], row["label"], reason, text))


def _traits(measured: Measured) -> tuple[str, str, str, bool]:
    run = measured.account
    return (workload_checksum(measured.stored_account.get("source", {})), document.pace_title(measured),
            state_name(dict(run.state)) if run.state else "", run.simulated)


def _limits(measured: Measured) -> dict[str, float]:
    """The limits of the effect of the host that the run was judged by; empty if it was not."""
    return measured.account.host_effect.limits


def _note_renamed(joined: Joined, new_runs: Sequence[Measured]) -> None:
    labels: dict[tuple[Any, ...], dict[str, None]] = {}
    for run in (*new_runs, *joined.runs):
        drive = document.drive(run)
        if unit := drive.get("serial_hash"):
            labels.setdefault((unit, drive.get("firmware")), {})[document.label(run)] = None
    for (unit, _), names in labels.items():
        if len(names) > 1:
            joined.notes.append(f"unit {unit[:8]} has {len(names)} labels, and stands as {len(names)} drives: "
                                f"{', '.join(names)}")
