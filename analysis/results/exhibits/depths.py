"""Pages of depth sweeps: what each queue depth gains, and what it costs."""

from ...exhibits.model import Column, Exhibit, Section
from .curves import curves
from .drawing import Axis
from .ground import MB_S, POWER, Ground, efficiency, ranking
from .subjects import Subject
from .tables import Figure, Place, figure_table

_DEPTH = Axis("queue depth", "", "log2")
_SHARE = "lowest measured depth with at least 95 % of the best depth's throughput"
_FIGURES = [
    Figure("mb_s", "Throughput", "rate", "", "bytes / max(complete) − min(submit)", "higher"),
    Figure("iops", "IOPS", "number", "", "I/Os / max(complete) − min(submit)", "higher"),
    Figure("mean_ns", "Latency, mean", "time", "", "Σ (complete − submit) / n", "lower"),
    Figure("max_ns", "Latency, maximum", "time", "", "longest single I/O", "lower"),
    Figure("little", "IOPS × latency / depth", "number", "", "1 where the depth was kept (Little)"), *POWER]

_SWEEP = [
    Figure("lowest_depth_with_95_percent", "Lowest depth with 95 %", "count", "", _SHARE, "lower"),
    Figure("best_mb_s", "Best throughput", "rate", "", "of the depths measured", "higher"),
    Figure("mean_of_maxima_ns", "Mean of the maxima", "time", "", "arithmetic mean over depths of the longest latency "
           "of each: an average of single I/Os", "lower")]


def lead(subject: Subject) -> tuple:
    states = subject.states()
    return subject.value("states", states[0], "best_mb_s") if states else None, True


def sections(ground: Ground):
    for state in ground.states():
        yield Section(f"state-{state or 'any'}", f"State {state}" if state else "By queue depth",
                      tuple(one for one in sweep_exhibits(ground, state, ("states", state)) if one))


def sweep_exhibits(ground: Ground, state: str, base: tuple, prefix: str = ""):
    """Exhibits of the sweep whose figures lie at `base`; also part of qd1. prefix: of their ids."""
    def title(words):
        return ground.titled(words, state)

    depths = sorted({int(depth) for subject in ground.subjects for depth in subject.keys(*base, "depths")})
    places = [Place(subject, (*base, "depths", str(depth)), {"depth": depth}) for subject in ground.subjects
              for depth in depths if subject.holds(*base, "depths", str(depth))]
    if not places:
        return
    table = figure_table(title("By queue depth"), places, _FIGURES, (*base, "depths", "{depth}"),
                         (Column("depth", "Depth", "count"),))
    for key, id_, words, axis, better in (
            ("mb_s", "depth-sweep", "Throughput by queue depth", MB_S, "higher"),
            ("mean_ns", "depth-latency", "Mean latency by queue depth", Axis("mean latency", "ns", "auto"), "lower"),
            ("max_ns", "depth-maximum", "Longest latency by queue depth", Axis("longest latency", "ns", "auto"),
             "lower")):
        rows = []
        for place in places:
            if (value := place.subject.value(*place.base, key).value) is not None:
                row = {"entry": place.subject.key, "line": "", "x": place.labels["depth"], "y": value}
                if key == "mb_s" and place.labels["depth"] == place.subject.value(
                        *base, "lowest_depth_with_95_percent").value:
                    row["ring"] = "95 %"
                rows.append(row)
        ringed = any("ring" in row for row in rows)
        yield Exhibit(ground.named(prefix + id_, state), title(words), table,
                      curves(words, rows, ground.apart(), _DEPTH, axis), better,
                      "The ring is the lowest depth with 95 % of the drive's best." if ringed else
                      "Single I/Os: each depth's longest says little by itself." if key == "max_ns" else "")
    yield from _apart(ground, state, base, prefix, title, set(depths))
    id_ = ground.named(f"{prefix}lowest-depth", state)
    of_sweep = figure_table(title("Of the sweep"), ground.places(*base), _SWEEP, base)
    if ground.several:
        yield ranking(ground, id_, title("Lowest depth with 95 % of the best"), Axis("queue depth", "", "log2"),
                      [("", (*base, "lowest_depth_with_95_percent"))], of_sweep, better="lower", form="count")
    else:
        yield Exhibit(id_, title("Of the sweep"), of_sweep)
    worth = efficiency(ground, ground.named(f"{prefix}depth-efficiency", state), title("Efficiency by queue depth"),
                       [(f"depth {depth}", (*base, "depths", str(depth)), "mb_s")
                        for depth in ((depths[0], depths[-1]) if ground.several else depths)])
    if worth:
        yield worth


def _apart(ground, state, base, prefix, title, depths):
    apart = [depth for depth in (32, 128) if depth in depths] or sorted(depths)[-1:]
    if not ground.several:
        return
    words = " and ".join(map(str, apart))
    table = figure_table(title(f"Depth {words}"), ground.places(*base, "depths"), [
        Figure(f"{key}_at_{depth}", f"{name} at {depth}", form, "", "", better, (str(depth), key))
        for key, name, form, better in (("mb_s", "Throughput", "rate", "higher"), ("iops", "IOPS", "number", "higher"),
                                        ("mean_ns", "Mean latency", "time", "lower")) for depth in apart],
        (*base, "depths"))
    shown = ranking(ground, ground.named(f"{prefix}depth-apart", state), title(f"Throughput at depth {words}"), MB_S,
                    [(f"depth {depth}", (*base, "depths", str(depth), "mb_s")) for depth in apart], table,
                    better="higher", form="rate", lead=len(apart) - 1)
    if shown:
        yield shown
