"""Pages of mixed-random and mixed-sequential: throughput and efficiency from all reads to all writes."""

from ...exhibits.model import Column, Exhibit, Section
from .curves import curves, slope
from .drawing import Axis
from .ground import MB_S, POWER, Ground, efficiency, ranking
from .subjects import Subject
from .tables import Figure, Place, figure_table, plain

_READS = Axis("reads", "%")
_RATE = Figure("mb_s", "Throughput", "rate", "", "bytes read and written / max(complete) − min(submit)", "higher")


def lead(subject: Subject) -> tuple:
    states = subject.states()
    return subject.value("states", states[-1], "mean", "mb_s") if states else None, True


def sections(ground: Ground):
    yield Section("means", "Over all mixes", tuple(one for one in (
        _means(ground), *_full_empty(ground), efficiency(
            ground, "efficiency", "Efficiency over all mixes",
            [(state, ("states", state, "mean"), "mb_s") for state in ground.states()])) if one))
    yield Section("mixes", "By share of reads", tuple(one for key, title, axis in (
        ("mb_s", "Throughput", MB_S), ("mb_per_j", "Efficiency", Axis("efficiency", "MB/J", "auto")),
        ("average_w", "Power", Axis("power", "W"))) for one in _by_mix(ground, key, title, axis) if one))


def _means(ground):
    states = ground.states()
    places = [Place(subject, ("states", state, "mean"), {"state": state}) for subject in ground.subjects
              for state in states if subject.holds("states", state, "mean")]
    table = figure_table("Mean of the mixes", places, [
        Figure("mb_s", "Throughput", "rate", "", "arithmetic mean of the throughputs of all mixes", "higher"), *POWER,
        Figure("n", "Repeats", "count")], ("states", "{state}", "mean"), (Column("state", "State"),))
    return ranking(ground, "mean", "Mean of the mixes", MB_S,
                   [(state or "all", ("states", state, "mean", "mb_s")) for state in states], table, better="higher",
                   form="rate", lead=len(states) - 1)


def _full_empty(ground):
    pairs = list(dict.fromkeys((full, pair["empty"]) for subject in ground.subjects for test in subject.tests
                               for full, pair in test["figures"].get("full_over_empty", {}).items()))
    for full, empty in pairs:
        ends = [("states", empty, "mean", "mb_s"), ("states", full, "mean", "mb_s")]
        rows = ground.between(*ends)
        base = ("full_over_empty", full)
        table = figure_table(f"Throughput, {full} / {empty}", ground.places(*base), [
            Figure("mean", "Full / empty", "number", "", "mean of the mixes, full / nearly empty", "higher"),
            Figure("geometric_mean", "by mix", "number", "", "geometric mean over mixes of full / nearly empty",
                   "higher")], base)
        mixes = sorted({mix for subject in ground.subjects for mix in subject.keys(*base, "mixes")}, key=int)
        yield Exhibit(_id("full-empty", full, pairs), f"From {empty} to {full}", table,
                      slope(f"Mean throughput of the mixes, {empty} and {full}", rows, ground.apart(), (empty, full),
                            MB_S), "higher", "What of its speed a drive keeps once it is full.")
        rows = [{"entry": subject.key, "line": "", "x": int(mix), "y": ratio} for subject in ground.subjects
                for mix in mixes if (ratio := subject.value(*base, "mixes", mix).value) is not None]
        table = figure_table(f"{full} / {empty}, by mix", ground.places(*base, "mixes"), [
            Figure(f"of_{mix}", f"{mix} % reads", "number", "", "throughput full / nearly empty", "higher",
                   (mix,)) for mix in mixes], (*base, "mixes"))
        yield Exhibit(_id("full-empty-mix", full, pairs), f"{full} / {empty}, by share of reads", table,
                      curves(f"Throughput {full} over {empty}, by share of reads", rows, ground.apart(), _READS,
                             Axis("full / empty")), "higher")


def _id(stem, full, pairs):
    return stem if len(pairs) == 1 else f"{stem}-{full.replace('+', '-')}"


def _by_mix(ground, key, title, axis):
    groups = [[state] for state in ground.states()] if ground.several else [ground.states()]
    for states in groups:
        rows, places = [], []
        for subject in ground.subjects:
            for state in states:
                for mix in sorted(subject.keys("states", state, "mixes"), key=int, reverse=True):
                    base = ("states", state, "mixes", mix)
                    places.append(Place(subject, base, {"state": state, "mix": int(mix)}))
                    if (value := subject.value(*base, key)).value is not None:
                        rows.append({"entry": subject.key, "line": state, "x": int(mix), "y": value.value})
        if not rows:
            continue
        labels = (Column("state", "State"), Column("mix", "Reads", "number", "%"))
        table = figure_table(f"{title} by share of reads", places, [_RATE, *_OTHERS, *POWER] if key == "mb_s" else
                             [figure for figure in POWER if figure.key == key],
                             ("states", "{state}", "mixes", "{mix}"), labels)
        stem = {"mb_s": "mix", "mb_per_j": "mix-efficiency", "average_w": "mix-power"}[key]
        id_, words = (ground.named(stem, states[0]), ground.titled(f"{title} by share of reads", states[0])) \
            if ground.several else (stem, f"{title} by share of reads")
        yield Exhibit(id_, words, table, curves(f"{words}", rows, ground.apart(states), _READS, axis),
                      "" if key == "average_w" else "higher", _shape(ground, rows, states) if key == "mb_s" else "")


_OTHERS = [Figure("iops", "IOPS", "number", "", "I/Os / time", "higher"),
           Figure("read_mean_ns", "Read latency, mean", "time", "", "Σ latency / n", "lower"),
           Figure("write_mean_ns", "Write latency, mean", "time", "", "Σ latency / n", "lower")]


def _shape(ground, rows, states):
    """A sentence of one drive: where it is slowest."""
    if ground.several or not rows:
        return ""
    least = min(rows, key=lambda row: row["y"])
    state = f" in state {least['line']}" if len(states) > 1 else ""
    return f"Slowest at {least['x']} % reads{state}: {plain(least['y'], 'rate')}."
