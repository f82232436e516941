"""From files to a document and its page: what `blkreel report`, `blkreel compare` and the demo call."""

from collections.abc import Callable

from blkreel.traces.errors import UsageError

from . import document, export
from .bursts import DEFAULT_GAP_NS
from .exhibits import compare as compare_exhibits
from .exhibits import report as report_exhibits
from .exhibits.facts import chosen, models_of
from .once_more import read_again
from .results import exhibits as test_exhibits
from .results import results_of
from .results.compared import compared
from .results.exhibits.subjects import models_of as models_of_subjects
from .results.exhibits.subjects import subjects_of
from .scale import Way, measure_fleet


def compare(paths: list, output=None, *, gap_ns: int = DEFAULT_GAP_NS, force: bool = False,
            view: export.View | None = None, way: Way | None = None,
            on_rows: Callable[[str, int, int], None] = lambda path, done, total: None) -> dict:
    """The comparison of runs and traces as a document; with `output`, also its page, in the form that `view` names.

    paths: also directories, patterns and URLs (scale/dataset.py); way: how they are read. Raises OutputExists before
    anything is read, TraceError for a file that is no trace, UsageError for a run named twice. on_rows(path, done,
    total) is told of progress, in rows of all.
    """
    view = view or export.View()
    view.check(output, force)
    fleet = measure_fleet(paths, gap_ns=gap_ns, way=way, on_rows=on_rows)
    shown, sections = document.comparison(fleet.measured)
    _tell(shown, fleet)
    view.check_drives(models_of(shown["sections"]))
    if view.wanted(output):
        read_again(compare_exhibits.drawn(sections, view.highlight), **_of_way(way),
                   marked=chosen(view.highlight, models_of(shown["sections"])))
    view.write(shown, lambda: compare_exhibits.page_of(shown, sections, view.highlight, view.catalogue), output, force)
    return shown


def report(path, output=None, *, gap_ns: int = DEFAULT_GAP_NS, force: bool = False, view: export.View | None = None,
           way: Way | None = None,
           on_rows: Callable[[str, int, int], None] = lambda path, done, total: None) -> dict:
    """One trace or run as a document; with `output`, also its page. Raises as `compare` does."""
    view = view or export.View()
    view.check(output, force)
    fleet = measure_fleet([path], gap_ns=gap_ns, way=way, on_rows=on_rows)
    if len(fleet.measured) > 1:
        raise UsageError(f"{path} holds {len(fleet.measured)} traces, and a report is of one",
                         f"see them side by side: blkreel compare {path}")
    shown, section = document.report(fleet.measured[0])
    _tell(shown, fleet)
    view.check_drives(models_of([section.shown]))
    if view.wanted(output):
        read_again([section], **_of_way(way))
    view.write(shown, lambda: report_exhibits.page_of(shown, section, view.catalogue), output, force)
    return shown


def report_test(directory, output=None, *, force: bool = False, view: export.View | None = None,
                on_step: Callable[[int, int], None] = lambda done, total: None) -> dict:
    """The results of a test as a document; with `output`, also its page. Raises as `compare` does.

    on_step(done, total) is told after each step that was read.
    """
    view = view or export.View()
    view.check(output, force)
    shown = results_of(directory, on_step)
    view.check_drives(models_of_subjects(subjects_of(shown)))
    view.write(shown, lambda: test_exhibits.page_of(shown, view.highlight, view.catalogue), output, force)
    return shown


def compare_tests(directories: list, output=None, *, force: bool = False, view: export.View | None = None,
                  on_step: Callable[[str, int, int], None] = lambda path, done, total: None) -> dict:
    """Results of one test on several drives as a document; with `output`, also its page. Raises as `compare` does.

    on_step(directory, done, total) is told after each step that was read.
    """
    view = view or export.View()
    view.check(output, force)
    document.refuse_repeated(directories)
    shown = compared(directories, [
        results_of(path, lambda done, total, path=path: on_step(str(path), done, total)) for path in directories])
    view.check_drives(models_of_subjects(subjects_of(shown)))
    view.write(shown, lambda: test_exhibits.page_of(shown, view.highlight, view.catalogue), output, force)
    return shown


def _of_way(way):
    return {"far": bool(way and way.cluster), "keep": way is None or way.keep}


def _tell(shown, fleet):
    """What was left out, and what was read again or not."""
    shown["notes"] = [*shown.get("notes", []), *fleet.notes]
    shown["kept"] = fleet.kept
