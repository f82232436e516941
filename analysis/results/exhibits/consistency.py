"""Pages of consistency: how evenly a drive goes on, second by second, and how warm it gets."""

from ...exhibits.model import Column, Exhibit, Row, Section, Table
from .drawing import Axis
from .ground import POWER, Ground, ranking
from .over_time import MOST_POINTS, rate_and_temperature, reduced
from .subjects import Subject
from .tables import Figure, figure_table, plain

_FIGURES = [
    Figure("mean_iops", "IOPS, mean", "number", "", "mean of the 1 s bins of the last part", "higher"),
    Figure("score", "Consistency", "number", "", "mean / population standard deviation of the bins", "higher"),
    Figure("downside_score", "Dips only", "number", "", "median / √(mean(min(0, x − median)²))", "higher"),
    Figure("first_percentile_over_median", "Slowest 1 % of seconds / median", "share", "", "nearest rank", "higher"),
    Figure("share_under_half_median", "Seconds under half the median", "share", "", "share of the bins", "lower")]
_WHOLE = [
    Figure("whole_iops", "IOPS, mean", "number", "", "I/Os / time, of the whole run", "higher"),
    Figure("whole_mb_s", "Throughput", "rate", "", "bytes / time, of the whole run", "higher"),
    Figure("steady_iops", "IOPS, steady", "number", "", "mean from the first five steady rounds on", "higher"),
    Figure("steady_at_ns", "Steady after", "time", "", "when the first of them began", "lower"),
    Figure("stall_period_ns", "Stalls every", "time", "", "mean interval of periodic pauses"),
    Figure("stall_ns", "Stall", "time", "", "median pause, less the usual time between completions", "lower"),
    Figure("max_ns", "Latency, maximum", "time", "", "longest single I/O", "lower"),
    Figure("max_temperature_c", "Hottest", "number", "°C", "highest sample", "lower"), *POWER]


def lead(subject: Subject) -> tuple:
    states = subject.states()
    return subject.value("states", states[0], "downside_score") if states else None, True


def sections(ground: Ground):
    for state in ground.states():
        base = ("states", state)
        whole = figure_table(ground.titled("The whole run", state), ground.places(*base), _WHOLE, base)
        exhibits = [
            _over_time(ground, state, "whole", "iops-temperature", "IOPS and temperature"),
            _over_time(ground, state, "last", "last-part", "IOPS and temperature, the last part"),
            _scores(ground, state, "downside", "downside_score", "Evenness: dips only",
                    "How small the dips are against the median: what slow seconds cost, fast ones do not count."),
            _scores(ground, state, "consistency", "score", "Consistency",
                    "The published score; it punishes seconds that were too good as well."),
            _scores(ground, state, "mean-iops", "mean_iops", "IOPS of the last part"),
            Exhibit(ground.named("whole", state), ground.titled("Steady state, stalls and the whole run", state),
                    whole)]
        yield Section(f"state-{state or 'any'}", f"State {state}" if state else "Evenness",
                      tuple(one for one in exhibits if one))


def _scores(ground, state, id_, key, title, text=""):
    base = ("states", state)
    figures = sorted(_FIGURES, key=lambda figure: figure.key != key)
    table = figure_table(ground.titled("The last part", state), ground.places(*base), [
        *figures, Figure("last_s", "Last", "number", "s"), Figure("n", "Repeats", "count")], base)
    return ranking(ground, ground.named(id_, state), ground.titled(title, state),
                   Axis(title.lower() if key == "score" else "IOPS" if key == "mean_iops" else "median / dips",
                        "", "auto"), [("", (*base, key))], table, better="higher", form="number", text=text)


def _over_time(ground, state, part, id_, title):
    found = [(subject, series[0]) for subject in ground.subjects
             if (series := subject.series("iops", state=state, part=part))]
    if not found:
        return None
    most = min(1100, MOST_POINTS * 4 // 5 // (len(found) + 1))
    panels, warm = [], False
    for subject, series in found:
        (line,) = series["lines"]
        degrees = subject.series("temperature", state=state, part=part, repeat=series["of"]["repeat"])
        points = degrees[0]["lines"][0] if degrees else {"x": [], "y": []}
        warm = warm or bool(points["x"])
        mean, score = subject.value("states", state, "mean_iops"), subject.value("states", state, "downside_score")
        caption = "" if part == "whole" or mean.value is None else f"mean {plain(mean.value, 'number')}" + (
            f" · dips only {plain(score.value, 'number')}" if score.value is not None else "")
        panels.append({"entry": subject.key, "title": subject.name, "caption": caption,
                       "begin": line["x"][0], "until": line["x"][-1] + 1,
                       "rate": reduced(line["x"], line["y"], most),
                       "temperature": reduced(points["x"], [_tenth(y) for y in points["y"]], max(20, most // 4))})
    if part == "last" and all(panel["begin"] == 0 for panel in panels):
        return None
    rows = tuple(Row({"drive": panel["entry"], "at_s": at, "iops": rate}, panel["entry"], group=panel["title"])
                 for panel in panels for at, rate in panel["rate"])
    thinned = any(len(series["lines"][0]["x"]) > most for _, series in found)
    notes = [*(["No temperature was recorded."] if not warm else []),
             *(["Of each stretch its lowest and its highest second."] if thinned else []),
             *(["Of the first repetition."] if any(len(s.series("iops", state=state, part=part)) > 1 or
                                                    len(s.tests) > 1 for s, _ in found) else [])]
    return Exhibit(ground.named(id_, state), ground.titled(title, state),
                   Table("Completions in each second", (Column("drive", "Drive"), Column("at_s", "From", "number", "s"),
                                                        Column("iops", "IOPS", "number", better="higher")), rows),
                   rate_and_temperature(f"{title} over time, one row a drive", panels),
                   text="IOPS in seconds" + (", temperature dashed on the right" if warm else "") +
                        "; the strip below zooms.", notes=tuple(notes), wide=True, zooms=True)


def _tenth(value):
    return None if value is None else round(value, 1)
