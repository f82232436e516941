"""The page of one run or one captured trace."""

from ..columns import drive_words, idle_words, state_words
from . import figures
from .charts import fingerprint_exhibits, honesty_exhibits, latency_exhibits, over_time_exhibits
from .commands import with_gap
from .facts import entries_of
from .method import method_of
from .model import Page, Section


def page_of(document: dict, section, catalogue=None) -> Page:
    """document, section: of analysis.document.report. catalogue: analysis.catalogue.Catalogue."""
    entry, shown = section.entries[0].shown, section.shown
    run, order = entry["runs"][0]["run"], [entry["label"]]
    parts = [
        Section("figures", "Figures", tuple(figures.by_class(entry)), (shown["claim"],)),
        Section("time", "Over time", tuple(over_time_exhibits(section, "", order))),
        Section("latency", "How long each I/O took", tuple(latency_exhibits(section, "", order)),
                ("A curve is faint where fewer than 10 I/Os lie beyond: too few to tell.",)),
        Section("honesty", "Was the replay honest?", tuple([*honesty_exhibits(section, "", order),
                                                            *figures.certificate(run, entry["label"])])),
        Section("what", "Sizes, places, threads", tuple(one for one in [
            *fingerprint_exhibits(section, ""), figures.threads(document["threads"], entry["label"])] if one)),
    ]
    title = f"{drive_words(entry['drive'])}. " if drive_words(entry["drive"]) else ""
    lead = title + shown["title"]
    if run:
        lead += f"; state: {state_words(entry['state'])}; idle: {idle_words(entry['idle'])}"
    return Page("report", entry["label"], f"{lead}.", entries_of([shown], {}, None, catalogue),
                with_gap([part for part in parts if part.exhibits], document), **method_of(document, [shown]))
