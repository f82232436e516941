"""What a drive does with its power, where that was measured."""

from .. import numbers
from .commands import path_of
from .model import Column, Exhibit, Row, Table
from .parts import name_of
from .scatter import scatter

_FORMULA = "(bytes read + written) / energy from the run's first I/O to its end, idle time included: MB/J is MB/s/W"


def efficiency(entries, id_: str, order: list[str]) -> Exhibit | None:
    """entries: of an analysis.document.Section. None where no run has a measured power."""
    told = [one for one in (_told(entry) for entry in entries) if one]
    if not told:
        return None
    rows = [{"entry": one["entry"], "name": one["name"], "x": one["watts"], "y": one["mb_per_j"],
             "text": f"{numbers.digits(one['mb_per_j'])} MB/J at {numbers.digits(one['watts'])} W"} for one in told]
    columns = (Column("drive", "Drive"),
               Column("efficiency_mb_per_j", "Efficiency", "number", "MB/J", _FORMULA, better="higher"),
               Column("average_w", "Power", "number", "W", "energy / time that the meter covered", better="lower"),
               Column("energy_j", "Energy", "number", "J", "of all its runs"), Column("data_bytes", "Data", "size"),
               Column("meter", "Meter"))
    table = Table("Energy over whole runs", columns, tuple(
        Row({"drive": one["entry"], "efficiency_mb_per_j": one["mb_per_j"], "average_w": one["watts"],
             "energy_j": one["joules"], "data_bytes": one["bytes"], "meter": one["meter"]}, one["entry"],
            path=one["path"]) for one in sorted(told, key=lambda one: -one["mb_per_j"])))
    known = {one["entry"] for one in told}
    missed = [entry.shown["label"] for entry in entries if entry.shown["label"] not in known]
    notes = ["Up and to the left is better. Under one arrival pattern all drives move the same data: power decides."]
    if missed:
        notes.append(f"Power not measured: {', '.join(missed)}.")
    spec = scatter("Data per energy against average power, by drive", rows, order, ("average power", "W"),
                   ("efficiency", "MB/J"))
    return Exhibit(id_, "Efficiency", table, spec, notes=tuple(notes))


def _told(entry):
    joules = watts_ns = covered_ns = moved = 0
    meters = []
    for run in entry.shown["runs"]:
        power = ((run["run"] or {}).get("telemetry") or {}).get("power")
        if not power or not power.get("energy_j") or not power.get("covered_ns"):
            continue
        joules += power["energy_j"]
        covered_ns += power["covered_ns"]
        watts_ns += power["average_w"] * power["covered_ns"]
        moved += run["figures"]["all"]["data_bytes"]
        words = ", ".join(str(power[key]) for key in ("meter", "rail") if power.get(key))
        meters += [words] if words not in meters else []
    if not joules or not moved:
        return None
    return {"entry": entry.shown["label"], "name": name_of(entry.shown), "mb_per_j": moved / 1e6 / joules,
            "watts": watts_ns / covered_ns, "joules": joules, "bytes": moved, "meter": "; ".join(meters),
            "path": path_of(entry.shown)}
