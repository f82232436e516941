"""The page of one run or one captured trace."""

from dataclasses import replace

from blkreel.analysis.charts.model import Page, Section
from blkreel.analysis.frames.document import FrameReport
from blkreel.analysis.report.answer import answer, source_line
from blkreel.analysis.report.charts.beside import beside
from blkreel.analysis.report.charts.compute_speed import compute_speed
from blkreel.analysis.report.charts.frames import frame_charts
from blkreel.analysis.report.charts.tails import lateness_tails
from blkreel.analysis.report.charts.workload_profile import alignment, workload_profile
from blkreel.analysis.report.columns import drive_words, exposure_words, idle_words, state_words
from blkreel.analysis.report.commands import with_gap
from blkreel.analysis.report.document import Section as DocumentSection
from blkreel.analysis.report.drives_file import DrivesFile
from blkreel.analysis.report.verdict import Document

from . import metric_tables
from .drive_facts import entries_of
from .method import method_of
from .sections import latency_charts, over_time_charts


def page_of(document: Document, section: DocumentSection, drives_file: DrivesFile | None = None,
            frames: FrameReport | None = None) -> Page:
    """document, section: of document.report. frames: joined with the trace; they stand first."""
    entry, content = section.entries[0].document, section.document
    measured, order = section.entries[0].measured[0], [entry["label"]]
    beside_chart, curve = beside([entry], "beside"), compute_speed(content, [content], "compute-speed", order)
    parts = [
        *([Section("frames", "Stutter", tuple(frame_charts(frames, entry["label"])),
                   (f"{frames.document['sentence']}.", *frames.document["notes"]))] if frames else []),
        Section("beside", "Alone and beside the background", (beside_chart,) if beside_chart else ()),
        Section("compute", "Faster drive or faster processor", (curve,) if curve else ()),
        Section("figures", "Figures", tuple(metric_tables.by_class(entry)), (content["claim"],)),
        Section("time", "Over time", tuple(over_time_charts(section, order))),
        Section("latency", "Latency", tuple(latency_charts(section, order)),
                ("A curve is faint where fewer than 10 I/Os lie beyond: too few for a percentile.",)),
        Section("honesty", "Replay fidelity", tuple([
            *lateness_tails(section.entries, "", order),
            *metric_tables.certificate(measured.account, entry["label"])])),
        Section("what", "Workload", tuple(chart for chart in [
            *workload_profile(section.entries, ""),
            alignment(section.entries, "alignment"),
            metric_tables.threads(document["threads"], entry["label"])] if chart)),
    ]
    title = f"{drive_words(entry['drive'])}. " if drive_words(entry["drive"]) else ""
    lead = title + content["title"]
    if measured.is_run:
        lead += f"; state: {state_words(entry['state'])}; idle: {idle_words(entry['idle'])}"
    if entry["provider_limit"]:
        lead += f"; {entry['provider_limit']}"
    if words := exposure_words(entry):
        lead += f"; {words}"
    first = answer(content)
    if frames:
        first = replace(first, sentence=frames.document["sentence"])
    return Page("report", entry["label"], f"{lead}.", entries_of([content], {}, None, drives_file),
                with_gap([replace(part, source=source_line(content)) for part in parts if part.charts],
                         document), **method_of(document, [content]), answer=first)
