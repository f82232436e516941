"""The page of a comparison: each drive and pace in a table, then one section a pace."""

from .. import columns
from . import figures
from .charts import section_exhibits
from .commands import with_gap
from .facts import chosen, entries_of, filters_of, hues_of, models_of
from .method import method_of
from .model import Page, Section
from .ranking import RANKINGS, ranked, ranking

_SAID = 5  # drives of which a sentence is said: more are read in the table
MOST_DRAWN = 8  # sections: of a fleet's traces, each with its own workload, a page of every chart would help nobody


def page_of(document: dict, sections, highlight: str | None = None, catalogue=None) -> Page:
    """document, sections: of analysis.document.comparison. highlight: label of the drive under test, or words that it
    alone has. catalogue: analysis.catalogue.Catalogue. Raises UsageError for a highlight that is no drive.
    """
    shown = [section.shown for section in sections]
    highlight = chosen(highlight, models_of(shown))
    entries = entries_of(shown, _leads(shown), highlight, catalogue)
    hues, order = hues_of(entries), [entry.key for entry in entries]
    parts = [Section("figures", "Figures", (figures.headline(shown, order),))]
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
        rankings = [ranking(prefix + id_, section.shown["entries"], name, higher, hues)
                    for id_, name, higher in RANKINGS]
        others = section_exhibits(section, prefix, order, catalogue, highlight)
        parts.append(Section(f"s{index}", section.shown["title"],
                             tuple(one for one in [*rankings, *others] if one), _lead(section.shown)))
    return Page("compare", _title(order, highlight), _summary(shown), entries, with_gap(parts, document),
                filters_of(entries), tuple(notices), **method_of(document, shown))


def drawn(sections, highlight: str | None) -> list:
    """The sections whose charts are drawn: all of a few, of many those of the drive under test.

    What takes another pass over the rows is found out for these only, so that a fleet's rows stay where they are until
    somebody looks closer.
    """
    if len(sections) <= MOST_DRAWN:
        return list(sections)
    highlight = chosen(highlight, models_of([section.shown for section in sections]))
    return [section for section in sections
            if highlight and any(entry["label"] == highlight for entry in section.shown["entries"])]


def _leads(sections):
    """label -> (rank, place) by what the page leads with: the first ranking of the first section that has one of
    several. Where some drives have too few runs they have a place among the others, and no rank."""
    for section in sections:
        if len(section["entries"]) < 2:
            continue  # it says nothing of who stands before whom
        for _, name, higher in RANKINGS:
            rows = ranked(section["entries"], name, higher)
            if rows:
                return {row["shown"]["label"]: (row["rank"], row["place"] + 1) for row in rows}
    return {}


def _title(labels, highlight):
    if len(labels) <= 3:
        return " · ".join(labels)
    return f"{highlight} and {len(labels) - 1} others" if highlight else f"{len(labels)} drives, {labels[0]} in front"


def _summary(sections):
    if len(sections) > MOST_DRAWN:
        drives = {entry["label"] for section in sections for entry in section["entries"]}
        return f"{len(sections)} traces and paces of {len(drives)} drives."
    told = [f"{section['title']}: {len(section['entries'])} drive{'' if len(section['entries']) == 1 else 's'}"
            for section in sections]
    programs = sections[0]["source"]["programs"]
    words = f"{'; '.join(told)}."
    if programs:
        more = f" and {len(programs) - 4} more" if len(programs) > 4 else ""
        words += f" The trace holds I/O of {', '.join(programs[:4])}{more}."
    return words


def _lead(section):
    said = [f"{entry['label']} {sentence}" for entry in section["entries"] if (sentence := columns.sentence(entry))]
    return (section["claim"], *(said if len(said) <= _SAID else ()))
