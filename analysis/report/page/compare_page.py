"""The page of a comparison: the answer, then one section for each trace and pace, then the drives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from blkreel.analysis.charts.model import MOST_OPEN, Answer, Chart, Page
from blkreel.analysis.charts.model import Section as PageSection
from blkreel.analysis.report import workloads
from blkreel.analysis.report.answer import answer, source_line
from blkreel.analysis.report.charts.beside import beside
from blkreel.analysis.report.charts.changes import change_rows
from blkreel.analysis.report.charts.compute_speed import compute_speed
from blkreel.analysis.report.charts.ranking import ranked, ranking, rankings
from blkreel.analysis.report.charts.slowdown import slowdown
from blkreel.analysis.report.charts.workload_profile import workload_matrix
from blkreel.analysis.report.commands import with_gap
from blkreel.analysis.report.document import Section
from blkreel.analysis.report.drives_file import DrivesFile
from blkreel.analysis.report.verdict import Document
from blkreel.analysis.report.workloads import Overview, Score, overview_of
from blkreel.common.printable import within_sentence
from blkreel.common.units import counted
from blkreel.common.verdict import merged

from . import metric_tables
from .drive_facts import chosen, entries_of, filters_of, models_of
from .method import method_of
from .sections import section_charts

_OPEN = ("timeline", "read-tail", "write-tail")  # after the chart that answers
MOST_DRAWN = 8  # sections: for a fleet of traces, charts of all would make the page too large to read


@dataclass(frozen=True)
class Attached:
    """Results of another kind on the page of a comparison. score: what the matrix of workloads has of them. page: of
    the same kind of drives, by their labels; its sections follow those of the comparison. notes: on what the score
    leaves out."""

    document: Document
    score: Score
    models: dict[str, str]
    page: Callable[[str | None, DrivesFile | None], Page]
    notes: Sequence[str] = ()


def page_of(document: Document, sections: Sequence[Section], highlight: str | None = None,
            drives_file: DrivesFile | None = None, attached: Sequence[Attached] = ()) -> Page:
    """document, sections: of analysis.document.comparison. highlight: label of the drive under test, or words that it
    alone has. Raises UsageError for a highlight that is no drive.
    """
    documents = [section.document for section in sections]
    highlight = chosen(highlight, models_of(documents))
    entries = entries_of(documents, _leads(documents), highlight, drives_file)
    order = [entry.key for entry in entries]
    over = overview_of(documents, highlight, [attachment.score for attachment in attached])
    parts = []
    if over and (chart := workload_matrix(over, order)):
        parts.append(PageSection("overview", "All workloads", (chart,)))
    full = drawn(sections, highlight)
    notices = list(document["notes"])
    if len(full) < len(sections):
        whose = f"those of {highlight}" if highlight else "none"
        notices.append(f"These are {len(sections)} traces and paces. Their figures stand in one table, and charts are "
                       f"drawn of {whose}. For others: the same command with --highlight LABEL, or "
                       "blkreel report TRACE.")
    for index, section in enumerate(sections):
        if section not in full:
            continue
        prefix = f"s{index}-" if len(sections) > 1 else ""
        charts = _charts(section, documents, prefix, order, drives_file, highlight)
        title = section.document["title"]
        if len(sections) > 1 and (workload := section.document["source"].get("title")):
            title = f"{workload}: {within_sentence(title.partition(' (')[0])}"
        parts.append(PageSection(f"s{index}", title, charts, (section.document["claim"], *_stored_words(section)),
                                 source_line(section.document)))
    parts.append(PageSection("figures", "All figures", (metric_tables.headline(documents, order),)))
    page = Page("compare", _title(order, highlight), _summary(documents), entries, with_gap(parts, document),
                filters_of(entries), tuple(notices), **method_of(document, documents),
                answer=answer_of(documents, highlight, [attachment.score for attachment in attached]))
    return _with_attached(page, attached, highlight, drives_file)


def page_of_attached(over: Overview, attached: Sequence[Attached], under_test: str | None,
                     drives_file: DrivesFile | None = None) -> Page:
    """Benchmarks without runs: the matrix, then the sections of each. under_test: label."""
    labels = list(dict.fromkeys(label for workload in over.workloads for label in workload.drives))
    chart = workload_matrix(over, labels)
    sections = (PageSection("overview", "All workloads", (chart,)),) if chart else ()
    lead = f"{len(attached)} benchmarks of {len(labels)} drives."
    page = Page("compare", _title(labels, under_test), lead, (), sections, notices=notes_of(attached),
                answer=workloads.answer(over))
    return _with_attached(page, attached, under_test, drives_file)


def notes_of(attached: Sequence[Attached]) -> tuple[str, ...]:
    return tuple(note for attachment in attached for note in attachment.notes)


def _with_attached(page: Page, attached: Sequence[Attached], under_test: str | None,
                   drives_file: DrivesFile | None) -> Page:
    for index, attachment in enumerate(attached):
        own = attachment.page(under_test if under_test in attachment.models else None, drives_file)
        page = _joined(page, own, f"t{index}-", attachment.score.title)
    return page


def _joined(page: Page, other_page: Page, prefix: str, title: str) -> Page:
    """The page with the sections and drives of another one behind its own. prefix: of the ids of these. title: of the
    benchmark."""
    sections = tuple(replace(
        section, id=prefix + section.id, title=f"{title}: {section.title}",
        charts=tuple(replace(chart, id=prefix + chart.id) for chart in section.charts))
        for section in other_page.sections)
    keys = {entry.key for entry in page.entries}
    entries = [replace(entry, verdict=merged((entry.verdict, twin.verdict))) if (twin := next(
        (same for same in other_page.entries if same.key == entry.key), None)) else entry for entry in page.entries]
    entries += [replace(entry, rank=None, place=None, why="") for entry in other_page.entries if entry.key not in keys]
    return replace(page, entries=tuple(entries), sections=(*page.sections, *sections),
                   notices=(*page.notices, *(f"{title}: {notice}" for notice in other_page.notices)),
                   parameters=(*page.parameters, *((f"{title}: {name}", text) for name, text in other_page.parameters)),
                   decisions=(*page.decisions, *other_page.decisions))


def answer_of(sections: list[Document], highlight: str | None, scores: Sequence[Score] = ()) -> Answer:
    """The first screen: over all workloads, or of the only one. highlight: label of the drive under test."""
    over = overview_of(sections, highlight, scores)
    if over and over.overall:
        return workloads.answer(over, [entry for section in sections for entry in section["entries"]])
    return answer(sections[0], highlight)


def _charts(section: Section, sections: Sequence[Document], prefix: str, order: list[str],
            drives_file: DrivesFile | None, highlight: str | None) -> tuple[Chart, ...]:
    """The charts of a section: the MOST_OPEN that answer first, the others under Details. sections: all."""
    content = section.document
    ranked_charts = [chart for id_, metric in rankings(content)
                     if (chart := ranking(prefix + id_, content["entries"], metric))]
    two = [change_rows(content, f"{prefix}changes", highlight)] if len(content["entries"]) == 2 else []
    more_charts = section_charts(section, prefix, order, drives_file, highlight)
    by_writes = slowdown(content["entries"], f"{prefix}slowdown")
    beside_chart = beside(content["entries"], f"{prefix}beside")
    curve = compute_speed(content, sections, f"{prefix}compute-speed", order)
    charts = [chart for chart in [beside_chart, *two, *ranked_charts, by_writes, curve, *more_charts] if chart]
    lead = [chart.id for chart in [*filter(None, two), *ranked_charts]][:1]
    if beside_chart or by_writes:
        lead.insert(0, beside_chart.id if beside_chart else by_writes.id if by_writes else "")
    if two:  # two versions of a drive or firmware: single slow I/Os come first
        lead.append(f"{prefix}latency-over-time")
    wanted = [*lead, *([curve.id] if curve else []), *(prefix + name for name in _OPEN)]
    first = [chart for id_ in wanted for chart in charts if chart.id == id_][:MOST_OPEN]
    return (*(replace(chart, featured=chart.id != prefix + "read-tail") for chart in first),
            *(replace(chart, folded=True) for chart in charts if chart not in first))


def drawn(sections: Sequence[Section], highlight: str | None) -> list[Section]:
    """The sections with charts: all up to MOST_DRAWN sections, beyond that those of the drive under test.

    Only these need a second pass over the rows, so a large fleet is read once.
    """
    if len(sections) <= MOST_DRAWN:
        return list(sections)
    highlight = chosen(highlight, models_of([section.document for section in sections]))
    return [section for section in sections
            if highlight and any(entry["label"] == highlight for entry in section.document["entries"])]


def _stored_words(section: Section) -> list[str]:
    """What is left out of a section with results of a catalog."""
    stored = sum(run.is_stored for entry in section.entries for run in entry.measured)
    if not stored:
        return []
    return [f"{stored} run{'s are' if stored > 1 else ' is'} from a catalog, which has no single I/Os: drives are not "
            "compared I/O by I/O, nor reads beside writes. For these charts name the directories of the runs."]


def _leads(sections: list[Document]) -> dict[str, tuple[int | None, int]]:
    """label -> (rank, place) by what the page leads with: the first ranking of the first section that has one of
    several. Where some drives have too few runs they have a place among the others, and no rank."""
    for section in sections:
        if len(section["entries"]) < 2:
            continue  # no order among drives
        for _, metric in rankings(section):
            rows = ranked(section["entries"], metric)
            if rows:
                return {row.document["label"]: (row.rank, row.place + 1) for row in rows}
    return {}


def _title(labels: list[str], highlight: str | None) -> str:
    if len(labels) <= 3:
        return " · ".join(labels)
    return f"{highlight} and {len(labels) - 1} others" if highlight else f"{len(labels)} drives, {labels[0]} in front"


def _summary(sections: list[Document]) -> str:
    if len(sections) > MOST_DRAWN:
        drives = {entry["label"] for section in sections for entry in section["entries"]}
        return f"{len(sections)} traces and paces of {len(drives)} drives."
    lines = [f"{section['title']}: {counted(len(section['entries']), 'drive')}" for section in sections]
    programs = sections[0]["source"]["programs"]
    words = f"{'; '.join(lines)}."
    if programs:
        more = f" and {len(programs) - 4} more" if len(programs) > 4 else ""
        words += f" The trace holds I/O of {', '.join(programs[:4])}{more}."
    return words
