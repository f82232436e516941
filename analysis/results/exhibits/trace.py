"""Pages of trace: what a drive makes of a captured trace, empty and full."""

from ...exhibits.model import Column, Exhibit, Section
from .curves import slope
from .drawing import Axis
from .ground import MB_S, POWER, Ground, efficiency, ranking, slug
from .subjects import Subject
from .tables import Figure, Place, figure_table

_KINDS = {"all": "all I/Os", "reads": "reads", "writes": "writes"}
_RATES = [
    Figure("data_rate_mb_s", "Average data rate", "rate", "", "bytes read and written / busy time", "higher"),
    Figure("wall_rate_mb_s", "by wall time", "rate", "", "the same / max(complete) − min(submit)", "higher"),
    Figure("busy_ns", "Busy", "time", "", "time with at least one I/O outstanding", "lower"),
    Figure("energy_j", "Energy", "number", "J", "integral of power", "lower"), *POWER, Figure("n", "Repeats", "count")]


def lead(subject: Subject) -> tuple:
    states = subject.states()
    return subject.value("states", states[-1], "data_rate_mb_s") if states else None, True


def sections(ground: Ground):
    states = ground.states()
    places = [Place(subject, ("states", state), {"state": state}) for subject in ground.subjects for state in states
              if subject.holds("states", state)]
    table = figure_table("Data rate and energy", places, _RATES, ("states", "{state}"), (Column("state", "State"),))
    parts = [(state or "all", state) for state in states]
    rates = [
        ranking(ground, "trace-rate", "Average data rate", MB_S,
                [(name, ("states", state, "data_rate_mb_s")) for name, state in parts], table, better="higher",
                form="rate", lead=len(parts) - 1, text="Bytes by the time in which the drive had something to do."),
        _full_empty(ground),
        ranking(ground, "trace-energy", "Energy of the trace", Axis("energy", "J", "auto"),
                [(name, ("states", state, "energy_j")) for name, state in parts], table, better="lower", form="number",
                unit="J", lead=len(parts) - 1),
        efficiency(ground, "efficiency", "Efficiency", [(state, ("states", state), "data_rate_mb_s")
                                                        for state in states])]
    yield Section("rates", "Data rate and energy", tuple(one for one in rates if one and (
        one.spec or one.id != "trace-energy")))
    latencies = [one for kind in _KINDS for one in [_latency(ground, kind, "mean_ns", "Mean latency"),
                                                    _latency(ground, kind, "p99_ns", "p99")] if one]
    if latencies:
        yield Section("latency", "Latency", tuple(latencies))


def _latency(ground, kind, key, title):
    states = ground.states()
    places = [Place(subject, ("states", state, kind), {"state": state}) for subject in ground.subjects
              for state in states if subject.value("states", state, kind, "ops").value]
    if not places:
        return None
    table = figure_table(f"Latency of {_KINDS[kind]}", places, [
        Figure("mean_ns", "mean", "time", "", "Σ (complete − submit) / n", "lower"),
        Figure("p99_ns", "p99", "time", "", "nearest rank; only where at least 10 I/Os lie beyond", "lower"),
        Figure("max_ns", "maximum", "time", "", "longest single I/O", "lower"), Figure("ops", "I/Os", "count")],
        ("states", "{state}", kind), (Column("state", "State"),))
    return ranking(ground, f"trace-{'mean' if key == 'mean_ns' else 'p99'}-{slug(kind)}", f"{title} of {_KINDS[kind]}",
                   Axis("latency", "ns", "auto"), [(state or "all", ("states", state, kind, key)) for state in states],
                   table, better="lower", form="time", lead=len(states) - 1)


def _full_empty(ground):
    base = ("full_over_empty",)
    places = [place for place in ground.places(*base) if place.subject.value(*base, "of").value]
    if not places:
        return None
    full, empty = places[0].subject.value(*base, "of").value.split(" / ")
    rows = ground.between(*(("states", state, "data_rate_mb_s") for state in (empty, full)))
    table = figure_table("Full / empty", places, [
        Figure("data_rate", "Average data rate", "number", "", f"{full} / {empty}", "higher"),
        Figure("all_mean", "Mean latency, all", "number", "", f"{full} / {empty}", "lower"),
        Figure("reads_mean", "of reads", "number", "", f"{full} / {empty}", "lower"),
        Figure("writes_mean", "of writes", "number", "", f"{full} / {empty}", "lower")], base)
    return Exhibit("full-empty", f"From {empty} to {full}", table,
                   slope(f"Average data rate, {empty} and {full}", rows, ground.apart(), (empty, full), MB_S), "higher",
                   "What of its speed a drive keeps once it is full.")
