"""From traces and runs to a document and its page: what `blkreel report`, `blkreel compare` and the demo call."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from blkreel import __version__
from blkreel.analysis.charts.model import Page
from blkreel.analysis.compare.second_pass import MOST_ROWS, read_again
from blkreel.analysis.metrics.measure import Measured
from blkreel.analysis.metrics.partials.bursts import DEFAULT_GAP_NS
from blkreel.analysis.report.page.drive_facts import chosen, models_of
from blkreel.analysis.scale import Fleet, ReadOptions, measure_fleet
from blkreel.analysis.scale.fleet import RowProgress
from blkreel.common.errors import UsageError
from blkreel.common.files.storage_url import StorageUrl
from blkreel.traces.format.exposure import KEY, exposure_of
from blkreel.traces.format.exposure import VERSION as EXPOSURE_VERSION
from blkreel.traces.format.metadata_types import lacks
from blkreel.traces.format.reader import open_trace

from . import document
from .answer import answer, answer_document
from .export import Output, View
from .verdict import Document
from .workloads import answer as answer_of_workloads
from .workloads import overview_of, overview_of_scores, relative_document

if TYPE_CHECKING:
    from blkreel.analysis.frames.document import FrameOptions, FrameReport

    from .page.compare_page import Attached


def compare(paths: Sequence[str | Path | StorageUrl], output: Output | None = None, *, view: View | None = None,
            drop_invalid: bool = False, attached: "Sequence[Attached]" = (),
            edit: Callable[[Page], Page] = lambda page: page) -> Document:
    """The comparison of runs and traces as a document; with `output`, also its page, in the form that `view` names.

    paths: also directories, patterns and URLs (scale/dataset.py). drop_invalid: leave out runs with the verdict
    invalid. attached: results on the same page. edit: changes the page before it is written. Raises OutputExists before
    anything is read, TraceError for a file that is not a trace, UsageError for a run named twice.
    """
    view = view or View()
    view.check(output)
    return compare_fleet(measure_fleet(paths), output, view=view, drop_invalid=drop_invalid, attached=attached,
                         edit=edit)


def compare_fleet(fleet: Fleet, output: Output | None = None, *, force: bool = False, view: View | None = None,
                  read_options: ReadOptions | None = None, drop_invalid: bool = False,
                  attached: "Sequence[Attached]" = (), entry_of: document.EntryOf = document.entry,
                  edit: Callable[[Page], Page] = lambda page: page) -> Document:
    """As compare(), of runs and traces that were measured. entry_of: as of document.comparison()."""
    from .page import compare_page  # takes 40 ms to load, which the end of each replay needs not

    view = view or View()
    read_options = read_options or ReadOptions()
    if not drop_invalid:
        _check_service_times(fleet)
    built, sections = document.comparison(fleet.measured, drop_invalid, entry_of)
    _add_notes(built, fleet)
    built["notes"] += compare_page.notes_of(attached)
    models = models_of(built["sections"])
    scores = [attachment.score for attachment in attached]
    view.check_drives({**{label: model for attachment in attached for label, model in attachment.models.items()},
                       **models})
    under_test = chosen(view.highlight, models)
    over = overview_of(built["sections"], under_test, scores)
    built = {"answer": answer_document(compare_page.answer_of(built["sections"], under_test, scores)),
             "relative_performance": relative_document(over) if over else None, **built}
    if attached:
        built["benchmarks"] = [attachment.document for attachment in attached]
    if view.wanted(output):
        read_again(compare_page.drawn(sections, view.highlight), read_options, marked=under_test)
    view.write(built, lambda: edit(compare_page.page_of(built, sections, under_test, view.drives_file, attached)),
               output, force)
    return built


def compare_attached(attached: "Sequence[Attached]", output: Output | None = None, *, force: bool = False,
                     view: View | None = None) -> Document:
    """Results of several benchmarks without runs as a document; with `output`, also its page. Raises OutputExists, and
    UsageError if no two drives have results of two benchmarks."""
    from .page import compare_page

    view = view or View()
    view.check(output, force)
    models = {label: model for attachment in attached for label, model in attachment.models.items()}
    view.check_drives(models)
    under_test = chosen(view.highlight, models)
    notes = compare_page.notes_of(attached)
    over = overview_of_scores([attachment.score for attachment in attached], under_test, notes)
    built = {"version": document.VERSION, "kind": "compare", "blkreel": __version__, "parameters": {},
             "answer": answer_document(answer_of_workloads(over)), "relative_performance": relative_document(over),
             "notes": list(notes), "dropped_runs": [], "sections": [], "cache": {},
             "benchmarks": [attachment.document for attachment in attached]}
    view.write(built, lambda: compare_page.page_of_attached(over, attached, under_test, view.drives_file), output,
               force)
    return built


def report(path: str | Path | StorageUrl, output: Output | None = None, *, gap_ns: int = DEFAULT_GAP_NS,
           force: bool = False, view: View | None = None, read_options: ReadOptions | None = None,
           on_rows: RowProgress = lambda path, done, total: None, frames: "FrameOptions | None" = None) -> Document:
    """One trace or run as a document; with `output`, also its page. Raises as `compare` does.

    frames: join frame times with the trace; the document has them under `frames`. Raises also FrameLogError.
    """
    view = view or View()
    read_options = read_options or ReadOptions()
    view.check(output, force)
    fleet = measure_fleet([path], gap_ns=gap_ns, read_options=read_options, on_rows=on_rows)
    if len(fleet.measured) > 1:
        raise UsageError(f"{path} holds {len(fleet.measured)} traces, and a report is of one",
                         f"show them side by side: blkreel compare {path}")
    built, section = document.report(_with_exposure(fleet.measured[0]))
    _add_notes(built, fleet)
    view.check_drives(models_of([section.document]))
    built = {"answer": answer_document(answer(section.document)), **built}
    joined = _frames_of(fleet.measured[0], frames) if frames else None
    if joined:
        built["frames"] = joined.document
    if view.wanted(output):
        read_again([section], read_options)

    def page() -> Page:
        from .page.report_page import page_of

        return page_of(built, section, view.drives_file, joined)

    view.write(built, page, output, force)
    return built


def _frames_of(measured: Measured, options: "FrameOptions") -> "FrameReport":
    from blkreel.analysis.frames.document import report_frames

    if measured.records is None:
        raise UsageError(f"{measured.path}: a stored result without rows, which cannot be joined with frames",
                         "name the trace file")
    return report_frames(open_trace(measured.records), options)


def _with_exposure(measured: Measured) -> Measured:
    """Add the exposure of a trace whose file does not hold it, which takes a pass over the rows."""
    if KEY in measured.metadata or not isinstance(measured.records, Path) or measured.rows > MOST_ROWS:
        return measured
    sums = asdict(exposure_of(open_trace(measured.records)))
    return replace(measured, metadata={**measured.metadata, KEY: {"version": EXPOSURE_VERSION, "sums": sums}})


def _check_service_times(fleet: Fleet) -> None:
    """Raises UsageError for a captured trace whose source recorded no completions: there is nothing to compare."""
    for trace in fleet.measured:
        if "run" not in trace.metadata and lacks(trace.metadata, "latency"):
            raise UsageError(f"{trace.path} has no service times to compare: its source "
                             f"({trace.metadata.get('source_format', 'unknown')}) records no completions",
                             "compare replays of it, or leave it out with --drop-invalid")


def _add_notes(built: Document, fleet: Fleet) -> None:
    """What was left out, and the use of the cache."""
    built["notes"] = [*built.get("notes", []), *fleet.notes]
    built["cache"] = fleet.cache
