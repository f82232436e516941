"""Pages of trim: what a discard costs whoever reads meanwhile, and how long a whole drive takes."""

from ...exhibits.model import Column, Exhibit, Section
from .curves import curves
from .drawing import Axis
from .ground import Ground, ranking
from .subjects import Subject
from .tables import Figure, Place, figure_table, plain

_SLOPE = "least-squares line with a constant through one point for each extent"
_THEIL = "median of the slopes between all pairs of different sizes (Theil, Sen)"
_EXTENT = Axis("discarded extent", "block", "log2")


def lead(subject: Subject) -> tuple:
    return next((subject.value("extents", run, "added_s_per_gb") for run in subject.keys("extents")), None), False


def sections(ground: Ground):
    extents = [one for one in (*_by_size(ground), _slopes(ground)) if one]
    if extents:
        yield Section("extents", "Extents discarded beside reads", tuple(extents))
    whole = _whole(ground)
    if whole:
        yield Section("whole", "The whole drive discarded", (whole,))


def _runs(ground):
    """(drive, key in its figures, state, repeat) of each run of extents."""
    for subject in ground.subjects:
        for index in subject.keys("extents"):
            yield (subject, index, subject.value("extents", index, "state").value or "",
                   subject.value("extents", index, "repeat").value)


def _by_size(ground):
    runs = [(subject, index, state) for subject, index, state, repeat in _runs(ground) if repeat in (1, None)]
    states = list(dict.fromkeys(state for _, _, state in runs))
    for key, id_, title, what in (
            ("added_ns", "trim", "Latency added to reads, by size of the discard", "added latency"),
            ("took_ns", "trim-own", "Time of the discard itself, by size", "time of the discard")):
        for group in ([[state] for state in states] if ground.several else [states]):
            rows, places = [], []
            for subject, index, state in runs:
                if state not in group:
                    continue
                for size in sorted(subject.keys("extents", index, "by_size"), key=int):
                    base = ("extents", index, "by_size", size)
                    places.append(Place(subject, base, {"state": state, "run": index, "extent": int(size)}))
                    if (value := subject.value(*base, key).value) is not None:
                        rows.append({"entry": subject.key, "line": state, "x": int(size), "y": value})
            if not places:
                continue
            table = figure_table(title, places, [
                Figure("added_ns", "Added to reads, median", "time", "", "of its extents: longest response of a read "
                       "that met it, less the median response of the reads that met none", "lower"),
                Figure("added_max_ns", "longest", "time", "", "of its extents", "lower"),
                Figure("took_ns", "Discard took, median", "time", "", "complete − submit of the discard", "lower"),
                Figure("extents", "Extents", "count"), Figure("met", "Met by reads", "count")],
                ("extents", "{run}", "by_size", "{extent}"),
                (Column("state", "State"), Column("run", "Run"), Column("extent", "Extent", "count", formula="bytes")))
            several = ground.several and len(states) > 1
            name = f"{id_}-{group[0]}".replace("+", "-") if several else id_
            axis = Axis(what, "ns", "log" if rows and min(row["y"] for row in rows) > 0 else "linear")
            yield Exhibit(name, f"{title}, state {group[0]}" if several else title, table,
                          curves(title, rows, ground.apart(group), _EXTENT, axis), "lower",
                          notes=tuple(ground.without({row["entry"] for row in rows}, "this figure")))


def _slopes(ground):
    states = list(dict.fromkeys(state for _, _, state, _ in _runs(ground)))
    where = {(subject.key, state): index for subject, index, state, repeat in _runs(ground) if repeat in (1, None)}
    places = [Place(subject, ("extents", index), {"state": state, "run": index})
              for subject, index, state, _ in _runs(ground)]
    if not places:
        return None
    table = figure_table("Slopes", places, [
        Figure("added_s_per_gb", "Added to reads", "number", "s/GB", _SLOPE, "lower"),
        Figure("added_median_s_per_gb", "by medians", "number", "s/GB", _THEIL, "lower"),
        Figure("own_s_per_gb", "Of the discard", "number", "s/GB", _SLOPE, "lower"),
        Figure("own_median_s_per_gb", "by medians", "number", "s/GB", _THEIL, "lower"),
        Figure("extents", "Extents", "count"), Figure("met", "Met by reads", "count"),
        Figure("background_median_ns", "Reads undisturbed, median", "time", "", "nearest rank", "lower")],
        ("extents", "{run}"), (Column("state", "State"), Column("run", "Run")))
    parts = [(f"state {state}" if state else "", lambda subject, state=state: (
        "extents", where.get((subject.key, state), "none"), "added_s_per_gb")) for state in states]

    def told(subject):
        return " · ".join(f"{plain(value, 'number')} s/GB" for state in states if (value := subject.value(
            "extents", where.get((subject.key, state), "none"), "added_s_per_gb").value) is not None)

    return ranking(ground, "trim-slope", "Seconds added to a read, a GB discarded", Axis("s/GB", "", "auto"), parts,
                   table, better="lower", form="number", told=told,
                   text="The slope of added latency against size.")


def _whole(ground):
    states = list(dict.fromkeys(state for subject in ground.subjects for state in subject.keys("whole")))
    if not states:
        return None
    places = [Place(subject, ("whole", state), {"state": state}) for subject in ground.subjects for state in states
              if subject.holds("whole", state)]
    table = figure_table("Discard of the whole drive", places, [
        Figure("s_per_gb", "Cost", "number", "s/GB", "max(complete) − min(submit) of its discards / bytes", "lower"),
        Figure("took_ns", "Took", "time", "", "max(complete) − min(submit)", "lower"),
        Figure("bytes", "Discarded", "size"), Figure("n", "Repeats", "count")], ("whole", "{state}"),
        (Column("state", "State"),))
    return ranking(ground, "trim-whole", "Discard of the whole drive", Axis("s/GB", "", "auto"),
                   [(state or "all", ("whole", state, "s_per_gb")) for state in states], table, better="lower",
                   form="number", unit="s/GB")
