"""Pages of steady-write: rounds until a rate goes on, and what that rate is."""

from ...exhibits.model import Column, Exhibit, Row, Section, Table
from .curves import curves
from .drawing import Axis
from .ground import MB_S, Ground, ranking
from .subjects import Subject
from .tables import Figure, Place, figure_table


def lead(subject: Subject) -> tuple:
    return next((subject.value("of", of, "steady_mb_s") for of in subject.keys("of")), None), True


def sections(ground: Ground):
    of = list(dict.fromkeys(name for subject in ground.subjects for name in subject.keys("of")))
    exhibits = [_steady(ground, of), *_rounds(ground, of)]
    yield Section("rounds", "Rounds", tuple(one for one in exhibits if one))


def _steady(ground, of):
    places = [Place(subject, ("of", name), {"of": name}) for subject in ground.subjects for name in of
              if subject.holds("of", name)]
    table = figure_table("Steady state", places, [
        Figure("steady", "Steady", "text", "", "of the last five rounds: max − min ≤ 0.20 mean, 4 |slope per round| "
               "≤ 0.10 mean"), Figure("rounds", "Rounds", "count", better="lower"),
        Figure("steady_mb_s", "Throughput, last five", "rate", "", "geometric mean of the last five rounds", "higher"),
        Figure("steady_iops", "IOPS, last five", "number", "", "geometric mean of the last five rounds", "higher"),
        Figure("first_mb_s", "First round", "rate", "", "bytes / time", "higher"),
        Figure("last_over_first", "Last / first", "share", "", "throughput of the last round / the first", "higher")],
        ("of", "{of}"), (Column("of", "Of"),))
    # The first round beside it: what a drive promises, and what it keeps.
    parts = [(f"{words}{f', {name}' if len(of) > 1 else ''}", ("of", name, key)) for name in of
             for key, words in (("steady_mb_s", "steady"), ("first_mb_s", "first round"))]
    gone = [row.entry for row in table.rows if row.values.get("steady") is False]
    return ranking(ground, "steady", "Steady write throughput", MB_S, parts, table, better="higher", form="rate",
                   notes=(f"Not steady: {', '.join(dict.fromkeys(gone))}.",) if gone else ())


def _rounds(ground, of):
    for group in [[name] for name in of] if ground.several else [of]:
        rows = []
        for subject in ground.subjects:
            for series in subject.series("rounds"):
                for line in series["lines"]:
                    if line["name"] in group or (line["name"] == "rounds" and "" in group):
                        rows += [{"entry": subject.key, "line": line["name"], "x": x, "y": y}
                                 for x, y in zip(line["x"], line["y"], strict=True) if y is not None]
        if not rows:
            continue
        several = ground.several and len(of) > 1
        title = f"Throughput by round{f', {group[0]}' if several else ''}"
        table = Table(title, (Column("drive", "Drive"), Column("of", "Of"), Column("round", "Round", "count"),
                              Column("mb_s", "Throughput", "rate", formula="bytes / max(complete) − min(submit)",
                                     better="higher")),
                      tuple(Row({"drive": row["entry"], "of": row["line"], "round": row["x"], "mb_s": row["y"]},
                                row["entry"]) for row in rows))
        id_ = "rounds" if not several else f"rounds-{group[0]}".replace(" ", "-").replace("+", "-")
        yield Exhibit(id_, title, table, curves(title, rows, ground.apart(list(dict.fromkeys(
            row["line"] for row in rows))), Axis("round", kind="count"), MB_S), "higher")
