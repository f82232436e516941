"""The pages of a site: the overview, and one for each drive, each condition and each pair of drives."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from blkreel.analysis.charts.dot_plot import Dot, dot_plot
from blkreel.analysis.charts.matrix import MatrixCell, matrix
from blkreel.analysis.charts.model import Answer, Chart, Column, Entry, KeyFigure, Page, Row, Section, Table
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.theme import NO_BRAND, Brand
from blkreel.analysis.metrics.definitions.metric import Metric
from blkreel.analysis.metrics.definitions.registry import metric_of
from blkreel.analysis.report.workloads import interval_words, percent
from blkreel.analysis.stats.intervals import EFFECT
from blkreel.analysis.stats.relative import RelativePerformance, relative_performance
from blkreel.benchmarks.history.series import axis_of, columns_of
from blkreel.common.binning import grouped
from blkreel.common.printable import within_sentence
from blkreel.common.units import counted, size
from blkreel.common.verdict import Level, judged

from .content import MOST_COLUMNS, Condition, Content, SiteDrive, Standing
from .content import Row as Result
from .embed import forms_of

INDEX = "index.html"
FEED = "feed.xml"
MOST_WITH_ALL_PAIRS = 12  # drives; of more, each is paired with the next one and with its relatives
_CHARTED = 20  # drives of the overview's chart
_NEWEST = 20
OVERVIEW_STEM = "embed/overview"  # of the overview's chart as files
_DATE = len("2026-11-01")
_CHECKSUM_LETTERS = 12

_GEOMETRIC_MEAN = "geometric mean of the results that are not invalid"
_RELATIVE = "performance / performance of the best drive, in percent; performance = 1 / metric where lower is better"
_OVERALL = "geometric mean of the performance relative to the best drive, over all columns"
_INTERVAL = "95 % interval over runs (Satterthwaite), of the overall performance"
_MONEY = "overall performance, in percent, for each 100 of the currency"
_METHOD = (
    ("value of a drive", _GEOMETRIC_MEAN), ("performance", _RELATIVE), ("overall", _OVERALL),
    ("interval of a pair", "Welch's 95 % interval of the ratio of two geometric means; two drives differ where it "
                           f"excludes 1 and the ratio is more than {100 * (EFFECT - 1):.0f} % from 1"),
    ("place", "order of the values, however many results; the page of a pair says whether two drives differ"),
    ("columns of the overview", "of each workload and pace the state in which most drives were measured; at most "
                                f"{MOST_COLUMNS} workloads, those with most drives, of which at least two drives, and "
                                "half of those of the first workload, have all; real drives or simulated ones, "
                                "whichever have more results"),
    ("raw file", "each result is a JSON document with its drive, workload, state, verdict and metrics"))


def drive_path(drive: SiteDrive) -> str:
    return f"drives/{drive.slug}.html"


def condition_path(condition: Condition) -> str:
    return f"workloads/{condition.slug}.html"


def condition_stem(condition: Condition) -> str:
    """Of its chart as files."""
    return f"embed/{condition.slug}"


def result_path(id_: str) -> str:
    return f"results/{id_}.json"


def pair_path(*drives: SiteDrive) -> str:
    return f"pairs/{'--'.join(sorted(drive.slug for drive in drives))}.html"


def pairs_of(content: Content) -> list[tuple[SiteDrive, SiteDrive]]:
    """Drives with a page of their own, in the order of the overview. Both have a result under one condition."""
    drives = content.drives
    named = {name: number for number, drive in enumerate(drives)
             for name in (*(row["model"] for row in drive.rows), drive.label) if name}
    pairs = {}
    for number, drive in enumerate(drives):
        beside = range(number + 1, len(drives)) if len(drives) <= MOST_WITH_ALL_PAIRS else [
            number + 1, *(named[name] for name in _relatives(drive) if name in named)]
        for place in beside:
            if place < len(drives) and place != number:
                pair = tuple(sorted((number, place)))
                pairs[pair] = (drives[pair[0]], drives[pair[1]])
    measured = {drive.label: {condition.key for condition, _ in content.conditions_of(drive.label)} for drive in drives}
    return [(first, second) for _, (first, second) in sorted(pairs.items(), key=lambda item: item[0])
            if measured[first.label] & measured[second.label]]


def _relatives(drive: SiteDrive) -> list[str]:
    """Labels or models that drives.toml names as predecessor and rivals."""
    return [name for name in (drive.facts.get("predecessor"), *(drive.facts.get("rivals") or ())) if name]


@dataclass(frozen=True)
class Maker:
    """Makes the pages of a content. title: of the site."""

    content: Content
    title: str
    brand: Brand = NO_BRAND

    @cached_property
    def links(self) -> dict[str, str]:
        """Label of a drive -> its page."""
        return {drive.label: drive_path(drive) for drive in self.content.drives}

    @cached_property
    def pairs(self) -> list[tuple[SiteDrive, SiteDrive]]:
        return pairs_of(self.content)

    @cached_property
    def pairs_by_drive(self) -> dict[str, list[tuple[SiteDrive, SiteDrive]]]:
        return grouped((drive.label, pair) for pair in self.pairs for drive in pair)

    def index(self) -> Page:
        content = self.content
        ranked = [drive for drive in content.drives if drive.overall]
        counts = " · ".join((counted(len(content.drives), "drive"), counted(len(content.conditions), "workload"),
                             counted(len(content.results), "result")))
        sections = [Section("overview", "Overview", tuple(self._overview(ranked)),
                            source=f"{self.title} · {counts}")] if content.columns else []
        sections += [Section("workloads", "Workloads", (Chart("all-workloads", "Workloads", self._conditions()),)),
                     Section("newest", "Newest results", (Chart("newest-results", "Newest results", self._newest()),))]
        if content.columns:
            sections.append(_embed(sections[0].charts[0], OVERVIEW_STEM))
        notices = [f"Left out: {counted(count, 'result')} {why}." for why, count in content.left_out.items()]
        if len(content.currencies) > 1:
            notices.append(f"Prices are left out: they are in several currencies, {', '.join(content.currencies)}.")
        filters = tuple(name for name in ("class", "interface", "kind")
                        if len({drive.facts.get(name) for drive in content.drives}) > 1)
        entries = tuple(self._entry(drive, drive_path(drive)) for drive in content.drives)
        return Page("site", self.title, f"{counts}.", entries, tuple(sections), filters, tuple(notices),
                    decisions=_METHOD, brand=self.brand, feed=FEED,
                    answer=Answer(_sentence(ranked, content.columns) or self.title, f"{counts}."))

    def drive(self, drive: SiteDrive) -> Page:
        content, own = self.content, self.content.conditions_of(drive.label)
        figures = tuple(KeyFigure(condition.metric.unit.text(standing.value), condition.metric.title,
                                  f"{condition.title}: {_place(condition, standing)}")
                        for condition, standing in own[:3])
        facts = f"{counted(len(drive.rows), 'result')}, the newest of {_date(drive.rows[-1]) or 'an unknown day'}"
        sections = [Section("workloads", "Workloads", (Chart("by-workload", "Workloads", self._standings(drive)),)),
                    Section("pairs", "Beside other drives", (Chart("other-drives", "Beside other drives",
                                                                  self._pairs(drive)),),
                            (f"Any other pair: blkreel compare --catalog DIR --drive {shlex.quote(drive.label)} "
                             "--drive OTHER -o pair.html",)),
                    Section("metrics", "All metrics", (Chart("all-metrics", "All metrics", self._metrics(own)),),
                            ("Of the newest result of each workload.",)),
                    Section("results", "Results", (Chart("all-results", "Results", self._results(drive)),))]
        sentence = drive.label
        best, ranked = content.drives[0].label, sum(other.overall is not None for other in content.drives)
        if drive.overall and ranked > 1:
            sentence += f" has {percent(drive.overall.value)} of the performance of the best drive over " \
                        f"{counted(len(content.columns), 'workload')}, place {drive.place} of {ranked}" \
                        f"{_doubt(drive.overall, best) if drive.label != best else ''}"
        rows = [row for _, standing in own for row in standing.rows]
        return self._page(drive.label, f"{facts}.", (self._entry(drive, rows=rows),),
                          [section for section in sections if section.charts[0].table.rows],
                          Answer(sentence, f"{facts}.", figures))

    def condition(self, condition: Condition) -> Page:
        drives = {drive.label: drive for drive in self.content.drives}
        runs = sum(len(standing.values) for standing in condition.standings)
        what = " · ".join(filter(None, (condition.detail, counted(len(condition.standings), "drive"),
                                        counted(runs, "result"))))
        chart = self.chart(condition)
        sections = [Section("drives-of-workload", condition.metric.title, (chart,),
                            source=f"{condition.title} · {what}"),
                    _embed(chart, f"../{condition_stem(condition)}")]
        return self._page(condition.title, f"{what}.", tuple(
            replace(self._entry(drives[standing.label], f"../{self.links[standing.label]}", standing.rows),
                    place=standing.place)
            for standing in condition.standings), sections, Answer(_best(condition), f"{what}."),
            filters=("class", "interface"))

    def pair(self, base: SiteDrive, other: SiteDrive) -> Page:
        """`other` relative to `base`."""
        shared = [(condition, own, its) for condition, own in self.content.conditions_of(base.label)
                  if (its := condition.of(other.label))]
        columns = (Column("workload", "Workload"), Column("detail", "Pace and state"), Column("metric", "Metric"),
                   Column("one", base.label, formula=_GEOMETRIC_MEAN),
                   Column("other", other.label, formula=_GEOMETRIC_MEAN),
                   Column("performance", f"{other.label} relative", "share",
                          better="higher",
                          formula=f"performance of {other.label} / performance of {base.label}"),
                   Column("interval", "95 % interval"), Column("differ", "Differ"))
        rows = []
        for condition, own, its in shared:
            relative = relative_performance([condition.score], other.label, base.label)
            assert relative  # positive values
            sure = interval_words(relative)
            rows.append(Row({"workload": condition.title, "detail": condition.detail, "metric": condition.metric.title,
                             "one": condition.metric.unit.text(own.value),
                             "other": condition.metric.unit.text(its.value),
                             "performance": relative.value, "interval": sure or None,
                             "differ": ("yes" if relative.differs else "no") if sure else None},
                            why={"interval": "one run", "differ": "one run"},
                            links={"workload": f"../{condition_path(condition)}"}))
        overall = relative_performance([condition.score for condition, _, _ in shared], other.label, base.label)
        assert overall
        over = f"over {counted(len(rows), 'workload')}"
        table = Table(f"{other.label} beside {base.label}", columns, tuple(rows))
        entries = (
            self._entry(base, f"../{drive_path(base)}", [row for _, own, _ in shared for row in own.rows]),
            self._entry(other, f"../{drive_path(other)}", [row for _, _, its in shared for row in its.rows]))
        return self._page(
            f"{base.label} and {other.label}", f"{over.capitalize()}.", entries,
            [Section("pair", "Workloads", (Chart("by-workload", "Workloads", table),))],
            Answer(f"{other.label} has {percent(overall.value)} of the performance of {base.label} {over}"
                   f"{_doubt(overall, base.label)}", f"Geometric mean {over}."))

    def _page(self, title: str, lead: str, entries: tuple[Entry, ...], sections: Sequence[Section], answer: Answer,
              filters: tuple[str, ...] = ()) -> Page:
        """A page below the overview."""
        return Page("site", title, lead, entries, tuple(sections), filters, decisions=_METHOD, brand=self.brand,
                    navigation=((self.title, f"../{INDEX}"),), feed=f"../{FEED}", answer=answer)

    def chart(self, condition: Condition, up: str = "../") -> Chart:
        """The drives of a condition, the best first, with the range of their results."""
        metric = condition.metric
        dots = [Dot(standing.label, standing.value, number, low=min(standing.values), high=max(standing.values),
                    rank=standing.place,
                    text=metric.unit.text(standing.value), spread=f"{metric.unit.text(min(standing.values))} to "
                                                         f"{metric.unit.text(max(standing.values))}")
                for number, standing in enumerate(condition.standings)]
        style = SeriesStyle(tuple(standing.label for standing in condition.standings), {})
        spec = dot_plot(f"{metric.title} of {counted(len(dots), 'drive')}: {condition.title}, {condition.detail}.",
                        dots, style, axis_of(metric))
        value, smallest, largest = columns_of(metric)
        value = replace(value, formula="; ".join(filter(None, (metric.formula, _GEOMETRIC_MEAN))),
                        recompute=_command(condition))
        columns = (Column("place", "Place", "count"), Column("entry", "Drive"), value, smallest, largest,
                   Column("results", "Results", "count"),
                   Column("performance", "Relative", "share", formula=_RELATIVE, better="higher"),
                   Column("verdict", "Verdict", "verdict"), Column("newest", "Newest"))
        rows = tuple(Row(
            {"place": standing.place, "entry": standing.label, value.key: standing.value,
             smallest.key: min(standing.values), largest.key: max(standing.values),
             "results": len(standing.values), "performance": standing.relative.value, "verdict": _level(standing.rows),
             "newest": _date(standing.rows[-1])}, standing.label, path=tuple(row["path"] for row in standing.rows),
            links={"entry": up + self.links[standing.label],
                   "newest": f"{up}{result_path(standing.rows[-1]['id'])}"}) for standing in condition.standings)
        return Chart(condition.slug, metric.title, Table(f"{condition.title}: {metric.title}", columns, rows), spec,
                     metric.better, notes=("Thin lines: range of the results.",) if any(
                         len(standing.values) > 1 for standing in condition.standings) else (), wide=True,
                         featured=True)

    def _overview(self, ranked: Sequence[SiteDrive]) -> Iterable[Chart]:
        content, columns = self.content, self.content.columns
        titles = _titles(columns)
        currency = content.currencies[0] if len(content.currencies) == 1 else ""
        heads = [Column("place", "Place", "count"), Column("entry", "Drive"),
                 Column("overall", "Overall", "share", formula=_OVERALL, better="higher"),
                 Column("interval", "95 % interval", formula=_INTERVAL),
                 *(Column(column.slug, title, "share", recompute=_command(column), better="higher",
                          formula=f"{_RELATIVE}; metric: {column.metric.title}, {_GEOMETRIC_MEAN}")
                   for column, title in zip(columns, titles, strict=True))]
        if currency:
            heads += [Column("price", "Price", "number", currency),
                      Column("price_per_tb", "Price per TB", "number", f"{currency}/TB",
                             formula="price / capacity, 1 TB = 10¹² bytes", better="lower"),
                      Column("performance_per_price", "Value for money", "number", f"% per 100 {currency}",
                             formula=_MONEY, better="higher")]
        rows = []
        for drive in content.drives:
            is_best = bool(ranked) and drive is ranked[0]
            standings = {column.slug: column.of(drive.label) for column in columns}
            missing = [title for column, title in zip(columns, titles, strict=True) if not standings[column.slug]]
            values: dict[str, Any] = {
                "place": drive.place, "entry": drive.label, "overall": drive.overall.value if drive.overall else None,
                "interval": interval_words(drive.overall) if drive.overall and not is_best else None,
                **{key: own.relative.value for key, own in standings.items() if own},
                "price": drive.price, "price_per_tb": _per_tb(drive),
                "performance_per_price": 1e4 * drive.overall.value / drive.price
                if drive.overall and drive.price else None}
            which = ", ".join(missing) if len(missing) < 3 else f"{len(missing)} workloads"
            reason = f"no result of {which}"
            no_interval = "the others are relative to it" if is_best else "one run" if drive.overall else reason
            rows.append(Row(values, drive.label, {"overall": reason, "interval": no_interval},
                            {key: column.metric.unit.text(own.value) for column in columns
                             for key, own in ((column.slug, standings[column.slug]),) if own},
                            links={"entry": drive_path(drive)}))
        cells = [MatrixCell(drive.label, title, number, own.relative.value, not own.relative.differs,
                            percent(own.relative.value), column.metric.unit.text(own.value))
                 for number, drive in enumerate(ranked[:_CHARTED])
                 for column, title in zip(columns, titles, strict=True) if (own := column.of(drive.label))]
        cells += [MatrixCell(drive.label, "Overall", number, drive.overall.value, not drive.overall.differs,
                             percent(drive.overall.value), interval_words(drive.overall) if number else "")
                  for number, drive in enumerate(ranked[:_CHARTED]) if drive.overall and len(columns) > 1]
        style = SeriesStyle(tuple(drive.label for drive in ranked[:_CHARTED]), {})
        count = counted(min(len(ranked), _CHARTED), "drive")
        spec = matrix(f"Performance of {count} relative to the best drive of each workload.", cells,
                      (*titles, "Overall") if len(columns) > 1 else titles, style)
        notes = ["Gray: no difference shown to the best drive, or too few results for an interval."]
        if len(ranked) > _CHARTED:
            notes.append(f"The chart has the best {_CHARTED} of {len(ranked)} drives; the table has all.")
        if content.compared_workloads > len(columns):
            notes.append(f"Of the {content.compared_workloads} workloads the {len(columns)} with most drives in "
                         "common.")
        if any(condition.simulated != columns[0].simulated for condition in content.conditions):
            notes.append("Only simulated drives; real ones are on the pages of the workloads." if columns[0].simulated
                         else "Without simulated drives; they are on the pages of the workloads.")
        yield Chart("drives-by-workloads", "Drives and workloads", Table(
            "Performance of the drives, the best drive of a workload is 100 %",
            tuple(column for column in heads if any(row.values.get(column.key) is not None for row in rows)
                  or column.key == "overall"), tuple(rows)), spec, "higher",
            "100 % is the best drive of each workload.", tuple(notes), wide=True)

    def _conditions(self) -> Table:
        columns = (Column("workload", "Workload"), Column("detail", "Pace and state"), Column("metric", "Metric"),
                   Column("drives", "Drives", "count"), Column("results", "Results", "count"), Column("best", "Best"),
                   Column("value", "Its value"), Column("newest", "Newest"))
        return Table("Workloads by pace and state", columns, tuple(Row(
            {"workload": condition.title, "detail": condition.detail, "metric": condition.metric.title,
             "drives": len(condition.standings),
             "results": sum(len(own.values) for own in condition.standings), "best": condition.standings[0].label,
             "value": condition.metric.unit.text(condition.standings[0].value),
             "newest": max(_date(own.rows[-1]) for own in condition.standings)},
            links={"workload": condition_path(condition), "best": self.links[condition.standings[0].label]})
            for condition in self.content.conditions))

    def _newest(self) -> Table:
        newest = list(self.content.results.values())[-_NEWEST:]
        return Table("Newest results", (Column("entry", "Drive"), *_RESULT_COLUMNS), tuple(
            replace(table_row, values={**table_row.values, "entry": row["label"]}, links={
                **table_row.links, "entry": self.links[row["label"]]})
            for row in reversed(newest) for table_row in (_result_row(row, ""),)))

    def _standings(self, drive: SiteDrive) -> Table:
        columns = (Column("workload", "Workload"), Column("detail", "Pace and state"), Column("metric", "Metric"),
                   Column("value", "Value", formula=_GEOMETRIC_MEAN,
                          recompute=f"blkreel results list --catalog DIR --drive {shlex.quote(drive.label)}"),
                   Column("performance", "Relative", "share", formula=_RELATIVE, better="higher"),
                   Column("place", "Place"), Column("results", "Results", "count"),
                   Column("spread", "Largest / smallest", "change",
                          formula="largest / smallest value of the results, − 1"))
        return Table(f"{drive.label} by workload", columns, tuple(Row(
            {"workload": condition.title, "detail": condition.detail, "metric": condition.metric.title,
             "value": condition.metric.unit.text(own.value), "performance": own.relative.value,
             "place": _place(condition, own), "results": len(own.values),
             "spread": max(own.values) / min(own.values) - 1 if len(own.values) > 1 else None},
            why={"spread": "one result"}, path=tuple(row["path"] for row in own.rows),
            links={"workload": f"../{condition_path(condition)}"})
            for condition, own in self.content.conditions_of(drive.label)))

    def _pairs(self, drive: SiteDrive) -> Table:
        columns = (Column("other", "Drive"), Column("place", "Place", "count"),
                   Column("overall", "Overall", "share", formula=_OVERALL, better="higher"), Column("page", "Page"))
        rows = []
        for pair in self.pairs_by_drive.get(drive.label, ()):
            partner = pair[1] if pair[0] is drive else pair[0]
            rows.append(Row({"other": partner.label, "place": partner.place, "page": "both drives",
                             "overall": partner.overall.value if partner.overall else None},
                            links={"other": f"../{drive_path(partner)}", "page": f"../{pair_path(*pair)}"}))
        return Table(f"Drives beside {drive.label}", columns, tuple(rows))

    def _metrics(self, own: Sequence[tuple[Condition, Standing]]) -> Table:
        texts: dict[str, dict[str, str]] = {}
        metrics: dict[str, Metric] = {}
        for condition, standing in own:
            for figure in self.content.metrics.get(standing.rows[-1]["id"], ()):
                metric = metric_of(figure["key"], figure["unit"] or "", figure["better"] or "")
                metrics[figure["key"]] = metric
                texts.setdefault(figure["key"], {})[condition.slug] = metric.unit.text(figure["value"])
        titles = _titles([condition for condition, _ in own])
        columns = (Column("metric", "Metric"), *(Column(condition.slug, title) for (condition, _), title in
                                                 zip(own, titles, strict=True)),
                   Column("formula", "Formula"), Column("key", "--figure"))
        return Table("Metrics of the newest result of each workload; blkreel report RUN --figure KEY prints one",
                     columns, tuple(Row({"metric": metric.title, **texts[key], "formula": metric.formula or None,
                                         "key": key}) for key, metric in metrics.items()))

    def _results(self, drive: SiteDrive) -> Table:
        return Table(f"Results of {drive.label}", (*_RESULT_COLUMNS, Column("firmware", "Firmware"),
                                                   Column("kernel", "Kernel"), Column("blkreel", "blkreel")),
                     tuple(_result_row(row, "../") for row in reversed(drive.rows)))

    def _entry(self, drive: SiteDrive, link: str = "", rows: Sequence[Result] = ()) -> Entry:
        """rows: whose verdict it has; by default that of all results of the drive."""
        facts = dict(drive.facts)
        if capacities := dict.fromkeys(row["capacity_bytes"] for row in drive.rows if row["capacity_bytes"]):
            facts["capacity"] = ", ".join(map(size, capacities))
        return Entry(drive.label, facts, judged((), _level(rows or drive.rows)), place=drive.place,
                     link=link)


_RESULT_COLUMNS = (Column("date", "Date"), Column("workload", "Workload"), Column("detail", "Pace and state"),
                   Column("metric", "Metric"), Column("value", "Value"), Column("verdict", "Verdict", "verdict"),
                   Column("file", "Raw file"))


def _result_row(row: Result, up: str) -> Row:
    metric = metric_of(row["headline"] or "", row["headline_unit"] or "", "")
    value = row["headline_value"]
    reasons = (row["reasons"] or "").replace(",", ", ")
    return Row({"date": _date(row), "workload": row["workload_title"] or row["workload_name"],
                "detail": " · ".join(filter(None, (row["pace"], row["state"]))), "metric": metric.title,
                "value": metric.unit.text(value) if value is not None else None, "verdict": row["verdict"],
                "file": f"{row['id'][:8]}.json", "firmware": row["firmware"], "kernel": row["kernel"],
                "blkreel": row["blkreel"]}, row["label"], remarks={"verdict": reasons},
               path=row["path"], links={"file": f"{up}{result_path(row['id'])}"})


def _embed(chart: Chart, stem: str) -> Section:
    """stem: of the chart as files, from the page."""
    table = Table("The chart as files", (Column("form", "Form"), Column("file", "File")), tuple(
        Row({"form": form, "file": f"{stem}{suffix}".rpartition("/")[2]}, links={"file": f"{stem}{suffix}"})
        for suffix, form in forms_of(chart).items()))
    return Section("embed", "Embed", (Chart("embed-files", "Embed", table),))


def _titles(columns: Sequence[Condition]) -> tuple[str, ...]:
    """Distinct: with the pace and the state where two columns have the same title."""
    titles = [column.title for column in columns]
    longer = [f"{column.title}, {column.detail}" if titles.count(column.title) > 1 else column.title
              for column in columns]
    return tuple(f"{title} ({column.slug[-8:]})" if longer.count(title) > 1 else title
                 for title, column in zip(longer, columns, strict=True))


def _best(condition: Condition) -> str:
    best, *runners_up = condition.standings
    metric = condition.metric
    text = f"{condition.title}: {within_sentence(metric.title)} of {best.label} {metric.unit.text(best.value)}"
    if not runners_up:
        return text
    second = f"{runners_up[0].label} with {metric.unit.text(runners_up[0].value)}"
    tied = next((standing for standing in runners_up if not standing.relative.differs), None)
    if tied is None:
        return f"{text}, the best of {counted(len(condition.standings), 'drive')}; second is {second}"
    if tied.relative.low is None:
        return f"{text}, then {second}{_doubt(tied.relative, tied.label)}"
    return f"{text}; no difference to {tied.label} with {metric.unit.text(tied.value)} is shown"


def _sentence(ranked: Sequence[SiteDrive], columns: Sequence[Condition]) -> str:
    if len(ranked) < 2 or ranked[1].overall is None:
        return ""
    best, second = ranked[0], ranked[1].overall
    over = f"over {counted(len(columns), 'workload')}"
    tied = next((drive for drive in ranked[1:] if drive.overall and not drive.overall.differs), None)
    if tied is None or tied.overall is None:
        return f"{best.label} is the fastest of {len(ranked)} drives {over}; second is {ranked[1].label} with " \
               f"{percent(second.value)} of its performance"
    return f"{best.label} measured fastest of {len(ranked)} drives {over}, then {ranked[1].label} with " \
           f"{percent(second.value)}{_doubt(tied.overall, tied.label)}"


def _doubt(relative: RelativePerformance, label: str) -> str:
    """Behind a sentence that compares a drive with the drive of the label; empty if they differ."""
    if relative.differs:
        return ""
    return f"; one result is too few to show a difference to {label}" if relative.low is None else \
           f"; no difference to {label} is shown"


def _command(condition: Condition) -> str:
    """Lists the values that the mean is of."""
    return f"blkreel results list --catalog DIR --workload {condition.key[1][:_CHECKSUM_LETTERS]}"


def _per_tb(drive: SiteDrive) -> float | None:
    return drive.price / drive.capacity_bytes * 1e12 if drive.price and drive.capacity_bytes else None


def _place(condition: Condition, own: Standing) -> str:
    return f"{own.place} of {len(condition.standings)}"


def _level(rows: Iterable[Result]) -> Level:
    """The worst verdict but invalid, whose values are left out; invalid if all are."""
    levels = {row["verdict"] for row in rows}
    return "qualified" if "qualified" in levels else "valid" if "valid" in levels else "invalid"


def _date(row: Result) -> str:
    return (row["started_at"] or "")[:_DATE]
