"""Pages of slc-cache: how much a drive takes fast, how fast it is before and behind, and what a rest brings back."""

from ... import numbers
from ...exhibits.model import Column, Exhibit, Row, Section, Table
from .curves import curves
from .drawing import Axis
from .ground import MB_S, POWER, Ground, efficiency, ranking
from .over_time import MOST_POINTS, reduced
from .subjects import Subject
from .tables import Figure, Place, figure_table, plain

_FAST = "bytes written before the change point of ln(latency / bytes)"
_FIGURES = [
    Figure("fast_bytes", "Fast part", "size", "", _FAST, "higher"),
    Figure("before_mb_s", "Speed in it", "rate", "", "bytes / time up to the change", "higher"),
    Figure("after_mb_s", "Speed behind", "rate", "", "bytes / time from there on", "higher"),
    Figure("of_first", "Of the first", "share", "", "fast part / that of the first fill", "higher"),
    Figure("mean_mb_s", "Overall", "rate", "", "bytes / time of the fill", "higher"),
    Figure("written_bytes", "Written", "size"), *POWER, Figure("n", "Repeats", "count")]


def lead(subject: Subject) -> tuple:
    states = subject.states()
    return subject.value("states", states[0], "fast_bytes") if states else None, True


def sections(ground: Ground):
    for state in ground.states():
        fills = _fills(ground, state)
        first = next(iter(fills), None)
        exhibits = [_rate(ground, state, rest_ns, where) for rest_ns, where in fills.items()]
        if first is not None:
            exhibits = [_split(ground, state, first, fills[first]), exhibits[0], _sizes(ground, state, fills),
                        *exhibits[1:], *(_split(ground, state, rest_ns, where) for rest_ns, where in fills.items()
                                         if rest_ns != first and ground.several),
                        efficiency(ground, ground.named("efficiency", state),
                                   ground.titled("Efficiency of the first fill", state),
                                   [("first fill", ("states", state, "fills", "first"), "mean_mb_s")])]
        yield Section(f"state-{state or 'any'}", f"State {state}" if state else "The fast part",
                      tuple(one for one in exhibits if one))


def _fills(ground, state):
    """{rest in ns: {drive: the fill's key in its figures}}."""
    fills = {}
    for subject in ground.subjects:
        for index in subject.keys("states", state, "fills"):
            rest_ns = subject.value("states", state, "fills", index, "rest_ns").value
            if rest_ns is not None:
                fills.setdefault(rest_ns, {})[subject.key] = index
    return dict(sorted(fills.items()))


def _named(rest_ns):
    return "first fill" if rest_ns == 0 else f"after {numbers.setting(rest_ns)} of rest"


def _suffix(rest_ns):
    return "" if rest_ns == 0 else f"-after-{numbers.setting(rest_ns).replace(' ', '').replace('.', '-')}"


def _table(ground, state, fills, caption):
    places = [Place(subject, ("states", state, "fills", where[subject.key]),
                    {"fill": where[subject.key], "rest_ns": rest_ns})
              for subject in ground.subjects for rest_ns, where in fills.items() if subject.key in where]
    return figure_table(caption, places, _FIGURES, ("states", state, "fills", "{fill}"),
                        (Column("fill", "Fill"), Column("rest_ns", "Rest before", "time")))


def _split(ground, state, rest_ns, where):
    """Each drive cached and exhausted; one without a change has one speed."""
    def at(key):
        return lambda subject: ("states", state, "fills", where.get(subject.key, "none"), key)

    def told(subject):
        fast, slow, whole = (subject.value(*at(key)(subject)).value
                             for key in ("before_mb_s", "after_mb_s", "mean_mb_s"))
        if fast is None:
            return f"{plain(whole, 'rate')} throughout" if whole is not None else ""
        size = subject.value(*at("fast_bytes")(subject)).value
        return f"{plain(size, 'size')} at {plain(fast, 'rate')}, then {plain(slow, 'rate')}"

    def throughout(subject):
        return at("mean_mb_s" if subject.value(*at("before_mb_s")(subject)).value is None else "none")(subject)

    title = f"Cached and exhausted, {_named(rest_ns)}"
    return ranking(ground, ground.named(f"cache-split{_suffix(rest_ns)}", state), ground.titled(title, state),
                   Axis("write throughput", "MB/s", "auto"),
                   [("exhausted", at("after_mb_s")), ("cached", at("before_mb_s")), ("no change found", throughout)],
                   _table(ground, state, {rest_ns: where}, title), better="higher", form="rate", told=told,
                   leads=lambda subject: at("after_mb_s" if subject.value(*at("after_mb_s")(subject)).value is not None
                                            else "mean_mb_s")(subject),
                   text="How fast it is while there is room in its fast part, and how fast behind it.")


def _rate(ground, state, rest_ns, where):
    found = [(subject, series) for subject in ground.subjects
             for series in subject.series("rate", state=state, rest_ns=rest_ns)[:1]]
    if not found:
        return None
    most = min(1000, MOST_POINTS // len(found))
    rows, shown = [], []
    for subject, series in found:
        (line,) = series["lines"]
        width_s = series["of"]["width_ns"] / 1e9
        written, points = 0.0, []
        for rate in line["y"]:
            points.append((written, rate))
            written += rate * width_s * 1e6
        points += [(written, points[-1][1])] if points else []  # the last step is as long as the others
        points = reduced([at for at, _ in points], [rate for _, rate in points], most)
        fast = subject.value("states", state, "fills", where.get(subject.key, "none"), "fast_bytes").value
        mine = [{"entry": subject.key, "line": "", "x": at, "y": rate} for at, rate in points]
        if fast is not None and mine:
            index = max((index for index, row in enumerate(mine) if row["x"] <= fast), default=0)
            mine[index]["ring"] = "fast part" if not ground.several else ""
            mine.insert(index + 1, {"entry": subject.key, "line": "", "x": float(fast), "y": mine[index]["y"],
                                    "ring": plain(fast, "size")})
            mine[index].pop("ring")
        rows += mine
        shown += [Row({"drive": subject.key, "written_bytes": row["x"], "mb_s": row["y"]}, subject.key) for row in mine
                  if "ring" not in row]
    title = f"Write rate against what was written, {_named(rest_ns)}"
    table = Table(title, (Column("drive", "Drive"), Column("written_bytes", "Written before", "size"),
                          Column("mb_s", "Rate", "rate", better="higher")), tuple(shown))
    ringed = any("ring" in row for row in rows)
    return Exhibit(ground.named(f"cache{_suffix(rest_ns)}", state), ground.titled(title, state), table,
                   curves(title, rows, ground.apart(), Axis("written", "bytes"), MB_S, step=True, dots=False), "higher",
                   "The ring is the end of the fast part." if ringed else "No change of speed was found.", wide=True)


def _sizes(ground, state, fills):
    """The fast part after each rest."""
    table = _table(ground, state, fills, "Fast part, by the rest before it")
    names = tuple(_named(rest_ns) for rest_ns in fills)
    rows = []
    for subject in ground.subjects:
        for index, (_, where) in enumerate(fills.items()):
            value = subject.value("states", state, "fills", where.get(subject.key, "none"), "fast_bytes").value
            if value is not None:
                rows.append({"entry": subject.key, "line": "", "x": index, "y": float(value)})
    notes = {row.why["fast_bytes"] for row in table.rows if "fast_bytes" in row.why}
    title = ground.titled("Size of the fast part, by the rest before it", state)
    spec = curves(title, rows, ground.apart(), Axis("", kind="names", names=names), Axis("fast part", "bytes"))
    return Exhibit(ground.named("cache-size", state), title, table, spec, "higher",
                   "How much of it a rest brings back.", tuple(sorted(notes))[:3])
