"""Pages of qd1: one I/O at a time, its rates, its slow ones, and what it takes in power; by block size."""

from ...exhibits.model import Column, Exhibit, Section
from .curves import curves
from .depths import sweep_exhibits
from .drawing import Axis
from .ground import MB_S, POWER, Ground, efficiency, ranking, slug
from .subjects import Subject
from .tables import Figure, Place, figure_table, plain

_RATES = [
    Figure("kiops", "kIOPS", "number", "", "thousands of I/Os / max(complete) − min(submit)", "higher"),
    Figure("mb_s", "Throughput", "rate", "", "bytes / max(complete) − min(submit)", "higher")]
_NEAREST = "nearest rank of complete − submit; shown only where at least 10 I/Os lie beyond"
_QOS = [
    Figure("mean_ns", "Latency, mean", "time", "", "Σ (complete − submit) / n", "lower"),
    Figure("p99_ns", "p99", "time", "", _NEAREST, "lower"),
    Figure("p99_99_ns", "p99.99", "time", "", _NEAREST, "lower"),
    Figure("max_ns", "maximum", "time", "", "longest single I/O", "lower"), Figure("ops", "I/Os", "count")]
_WORTH = [POWER[0], Figure("kiops_per_w", "kIOPS/W", "number", "", "thousands of I/Os / joules", "higher"), POWER[1]]


def lead(subject: Subject) -> tuple:
    for state in subject.states():
        for index in subject.keys("states", state, "qd1"):
            return subject.value("states", state, "qd1", index, "kiops"), True
    return None, True


def sections(ground: Ground):
    for state in ground.states():
        kinds = _kinds(ground, state, "qd1")
        if kinds:
            yield Section(f"qd1-{slug(state)}", ground.titled("One outstanding", state),
                          tuple(one for one in (*_rates(ground, state, kinds), *_slow_ones(ground, state, kinds),
                                                *_worth(ground, state, kinds)) if one))
        blocks = tuple(_by_block(ground, state))
        if blocks:
            yield Section(f"blocks-{slug(state)}", ground.titled("By block size", state), blocks)
        sweep = tuple(sweep_exhibits(ground, state, ("states", state, "sweep"), "qd1-"))
        if sweep:
            yield Section(f"sweep-{slug(state)}", ground.titled("By queue depth", state),
                          tuple(one for one in sweep if one))


def _kinds(ground, state, role):
    """{words of an I/O: {drive: its key in the figures}}, in the order measured."""
    kinds = {}
    for subject in ground.subjects:
        for index in subject.keys("states", state, role):
            words = subject.value("states", state, role, index, "io").value
            kinds.setdefault(words, {})[subject.key] = index
    return kinds


def _at(state, role, where, *path):
    """The path of a figure in a drive's row of that kind."""
    return lambda subject: ("states", state, role, where.get(subject.key, "none"), *path)


def _table(ground, state, role, kinds, figures, caption):
    by_key = {subject.key: subject for subject in ground.subjects}
    places = [Place(by_key[key], ("states", state, role, index), {"io": index}, words)
              for words, where in kinds.items() for key, index in where.items()]
    return figure_table(caption, places, figures, ("states", state, role, "{io}"), (Column("io", "I/O"),))


def _rates(ground, state, kinds):
    """Random I/Os by how many, sequential ones by how much."""
    for words, where in kinds.items():
        random = words.startswith("random")
        key, form, axis = ("kiops", "number", Axis("kIOPS", "", "auto")) if random else ("mb_s", "rate", MB_S)
        if not ground.several:
            continue
        yield ranking(ground, ground.named(f"qd1-{slug(words)}", state), ground.titled(_titled(words), state), axis,
                      [("", _at(state, "qd1", where, key))],
                      _table(ground, state, "qd1", {words: where}, _RATES, words), better="higher", form=form,
                      unit="kIOPS" if random else "")
    if not ground.several:
        yield Exhibit(ground.named("qd1-rates", state), ground.titled("Rates, one outstanding", state),
                      _table(ground, state, "qd1", kinds, _RATES, "Rates, one outstanding"), better="higher")


def _slow_ones(ground, state, kinds):
    """Mean, p99 and p99.99 of each kind: joined, so that a long line is a drive whose slow I/Os are much slower."""
    for words, where in kinds.items():
        table = _table(ground, state, "qd1", {words: where}, _QOS, f"Latency, {words}")
        yield ranking(ground, ground.named(f"qd1-qos-{slug(words)}", state),
                      ground.titled(f"Slow ones among {_plural(words)}", state), Axis("latency", "ns", "auto"),
                      [(name, _at(state, "qd1", where, key)) for key, name in (
                          ("mean_ns", "mean"), ("p99_ns", "p99"), ("p99_99_ns", "p99.99"))], table, better="lower",
                      form="time", lead=1,
                      told=lambda subject, where=where: _slowest(subject, _at(state, "qd1", where)),
                      notes=_too_small(table))


def _slowest(subject, at):
    """The furthest percentile that there are enough I/Os for."""
    for key, name in (("p99_99_ns", "p99.99"), ("p99_ns", "p99"), ("mean_ns", "mean")):
        value = subject.value(*at(subject), key).value
        if value is not None:
            return f"{name} {plain(value, 'time')}"
    return ""


def _too_small(table):
    small = {row.entry for row in table.rows if "n too small" in row.why.get("p99_99_ns", "")}
    return (f"n too small for p99.99: {', '.join(sorted(small))}.",) if small else ()


def _worth(ground, state, kinds):
    for words, where in kinds.items():
        if words.startswith("random") and ground.several:
            table = _table(ground, state, "qd1", {words: where}, [_RATES[0], *_WORTH], f"Efficiency, {words}")
            shown = ranking(ground, ground.named(f"qd1-kiops-w-{slug(words)}", state),
                            ground.titled(f"kIOPS per watt, {_plural(words)}", state), Axis("kIOPS/W", "", "auto"),
                            [("", _at(state, "qd1", where, "kiops_per_w"))], table, better="higher", form="number",
                            unit="kIOPS/W")
            if shown and shown.spec:
                yield shown
    first = ground.subjects[0].key
    points = [(words, ("states", state, "qd1", where[first]), "mb_s") for words, where in kinds.items()
              if len(set(where.values())) == 1 and first in where]
    if points:
        yield efficiency(ground, ground.named("qd1-efficiency", state),
                         ground.titled("Efficiency, one outstanding", state), points)
    if not ground.several:
        table = _table(ground, state, "qd1", kinds, [*_RATES, *_WORTH], "Efficiency, one outstanding")
        if any(row.values.get("kiops_per_w") is not None for row in table.rows):
            yield Exhibit(ground.named("qd1-kiops-w", state), ground.titled("kIOPS per watt", state), table,
                          better="higher")


def _by_block(ground, state):
    kinds = {}
    for where in _kinds(ground, state, "blocks").values():
        for subject in ground.subjects:
            if subject.key not in where:
                continue
            base = ("states", state, "blocks", where[subject.key])
            access, op, block = (subject.value(*base, key).value for key in ("access", "op", "block"))
            if block:
                kinds.setdefault(f"{access} {op}".strip(), []).append((subject, base, block))
    groups = [[kind] for kind in kinds] if ground.several else [list(kinds)]
    for key, title, axis, better in (("mb_s", "Throughput", MB_S, "higher"),
                                     ("mean_ns", "Mean latency", Axis("mean latency", "ns", "auto"), "lower")):
        for group in groups:
            rows, places = [], []
            for kind in group:
                for subject, base, block in sorted(kinds[kind], key=lambda one: one[2]):
                    places.append(Place(subject, base, {"io": base[-1], "block": block}))
                    if (value := subject.value(*base, key).value) is not None:
                        rows.append({"entry": subject.key, "line": kind, "x": block, "y": value})
            if not rows:
                continue
            table = figure_table(f"{title} by block size", places, [*_RATES, *_QOS] if key == "mb_s" else _QOS,
                                 ("states", state, "blocks", "{io}"),
                                 (Column("io", "I/O"), Column("block", "Block", "block")))
            stem = f"qd1-blocks-{'rate' if key == 'mb_s' else 'latency'}"
            id_ = f"{stem}-{slug(group[0])}" if ground.several else stem
            words = f"{title} by block size" + (f", {group[0]}s" if ground.several else "")
            yield Exhibit(ground.named(id_, state), ground.titled(words, state), table,
                          curves(words, rows, ground.apart(group), Axis("block size", "block", "log2"), axis), better)


def _titled(words):
    return f"{_plural(words)[:1].upper()}{_plural(words)[1:]}, one outstanding"


def _plural(words):
    """random read 4K → random reads of 4K."""
    head, _, block = words.rpartition(" ")
    return f"{head}s of {block}" if head else f"{words}s"


