"""Load time over compute speed, by drive: whether a faster drive or a faster processor shortens a load."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Axis, Datum, Point
from blkreel.analysis.metrics.definitions.headline import ALONE, LOAD_TIME
from blkreel.analysis.report.answer import usable
from blkreel.analysis.report.beside import of_entry
from blkreel.analysis.report.commands import path_of
from blkreel.common import units
from blkreel.traces.format.condition import NO_COMPUTING
from blkreel.traces.format.metadata_types import Run

_WITHOUT = "no computing"  # on the axis
# A change of the load time below this share helps nobody.
_LEAST_SHARE = 0.1
_FORMULA = "load time with the computing between the I/Os of each thread divided by the compute speed"


@dataclass(frozen=True)
class _Curve:
    """entry: of the drive at the recorded compute speed. load_ns: by compute speed, infinite without computing.
    bound_ns: on a drive without latency, at the recorded compute speed. is_simulated: not measured."""

    entry: Datum
    load_ns: Mapping[float, float]
    bound_ns: float | None
    is_simulated: bool

    @property
    def fastest(self) -> float:
        return max(self.load_ns)


def compute_speed(section: Datum, sections: Sequence[Datum], id_: str, order: Sequence[str]) -> Chart | None:
    """The chart of a section at the recorded compute speed. None for another one, and without a second speed.

    Curves are those that were simulated with a run on a simulated drive, else the load times of the same drive in
    sections: runs of the same trace with `--compute`.
    """
    candidates = [(entry, Run.of(entry["runs"][0])) for other_section in sections for entry in other_section["entries"]]
    all_curves = [curve for entry in section["entries"] if (curve := _curve(entry, candidates))]
    if not all_curves:
        return None
    speeds = sorted({speed for curve in all_curves for speed in curve.load_ns})
    names = tuple(_name(speed) for speed in speeds)
    points = [Point(curve.entry["label"], LOAD_TIME.title, speeds.index(speed), load_ns)
              for curve in all_curves for speed, load_ns in sorted(curve.load_ns.items())]
    style = SeriesStyle.of_entries([curve.entry for curve in all_curves], order, (LOAD_TIME.title,))
    beside = of_entry(all_curves[0].entry)
    title = f"Load time {'alone ' if beside else ''}over compute speed"
    knows_sleep = Run.of(all_curves[0].entry["runs"][0]).pace.asleep_share is not None
    notes = [f"Waits for timers, frames or the network {'keep their length' if knows_sleep else 'count as computing'}."]
    if any(curve.is_simulated for curve in all_curves):
        notes.append("Simulated with the run, on a fresh drive.")
    if beside:
        notes.append(f"Without the {beside}.")
    spec = curves(f"{title}, by drive", points, style, Axis("compute speed", kind="names", names=names),
                  Axis(LOAD_TIME.title.lower(), "ns"))
    return Chart(id_, title, _table(all_curves, title), spec, "lower", f"{compute_sentence(all_curves)}.", tuple(notes))


def compute_sentence(all_curves: Sequence[_Curve]) -> str:
    """Whether a faster drive or a faster processor helps, of one drive; how far the drives are apart, of several."""
    if len(all_curves) == 1:
        return _of_one(all_curves[0])
    fastest = min(curve.fastest for curve in all_curves)
    here, there = ([curve.load_ns[speed] for curve in all_curves if speed in curve.load_ns] for speed in (1, fastest))
    if min(there) <= 0:
        return "Without computing, a drive takes no time"
    apart = [units.digits(max(times) / min(times)) for times in (here, there)]
    return (f"The slowest drive takes {apart[0]} times as long as the fastest at the recorded compute speed, "
            f"{apart[1]} times {_at(fastest)}")


def _of_one(curve: _Curve) -> str:
    text, load_ns = LOAD_TIME.unit.text, curve.load_ns[1]
    faster_ns = curve.load_ns[curve.fastest]
    sentence = f"{text(load_ns)} at the recorded compute speed, {text(faster_ns)} {_at(curve.fastest)}"
    if curve.bound_ns is None:
        return sentence
    by_processor, by_drive = 1 - faster_ns / load_ns, 1 - curve.bound_ns / load_ns
    if max(by_processor, by_drive) < _LEAST_SHARE:
        answer = "neither alone helps much"
    elif by_processor > by_drive:
        answer = "a faster processor helps more"
    else:
        answer = "a faster drive helps more"
    return f"{sentence}, {text(curve.bound_ns)} on a drive without latency: {answer}"


def _at(speed: float) -> str:
    return "without computing" if speed == float("inf") else f"with computing {speed:g} times as fast"


def _name(speed: float) -> str:
    return _WITHOUT if speed == float("inf") else f"x{speed:g}"


def _curve(entry: Datum, candidates: Sequence[tuple[Datum, Run]]) -> _Curve | None:
    run = Run.of(entry["runs"][0])
    if run.pace.name != "dependent" or _speed(run) != 1:
        return None
    bound_ns = run.zero_latency.load_time_ns
    load_ns: dict[float, float] = {_of(point.compute): point.load_time_ns for point in run.compute_curve}
    if load_ns:
        return _Curve(entry, load_ns, bound_ns, True) if load_ns.get(1, 0) > 0 else None
    for candidate, own in [(entry, run), *candidates]:
        value = usable(candidate, ALONE[LOAD_TIME.key] if of_entry(candidate) else LOAD_TIME)
        if value is not None and _identity(candidate, own) == _identity(entry, run):
            load_ns.setdefault(_speed(own), value)
    return _Curve(entry, load_ns, bound_ns, False) if 1 in load_ns and len(load_ns) > 1 else None


def _identity(entry: Datum, run: Run) -> tuple[object, ...]:
    """Equal for runs that differ in nothing but the compute speed."""
    drive = entry["drive"]
    return (run.source.sha256 or run.source.path, run.pace.name, run.pace.streams, run.idle, run.without,
            [background.spec for background in run.background],
            *(drive.get(key) for key in ("model", "name", "firmware", "serial_hash", "size_bytes")))


def _speed(run: Run) -> float:
    return _of(run.pace.compute or 1)


def _of(compute: float | str) -> float:
    return float("inf") if compute == NO_COMPUTING else float(compute)


def _table(all_curves: Sequence[_Curve], title: str) -> Table:
    columns = (Column("drive", "Drive"), Column("compute", "Compute speed"),
               Column("load_time_ns", LOAD_TIME.title, "time", "ns", _FORMULA, better="lower"),
               Column("change", "Change", "change", "%", "load time / load time at x1 - 1"),
               Column("bound_ns", "Without latency", "time", "ns", "load time on a drive without latency"))
    rows = []
    for curve in all_curves:
        for speed, load_ns in sorted(curve.load_ns.items()):
            bound_ns = curve.bound_ns if speed == 1 else None
            rows.append(Row({"drive": curve.entry["label"], "compute": _name(speed), "load_time_ns": load_ns,
                             "change": load_ns / curve.load_ns[1] - 1 if curve.load_ns[1] else None,
                             "bound_ns": bound_ns}, curve.entry["label"],
                            {} if bound_ns is not None else {"bound_ns": "only at the recorded compute speed"},
                            path=path_of(curve.entry)))
    return Table(title, columns, tuple(rows))
