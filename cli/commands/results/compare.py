"""`blkreel compare`: many runs side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape

from blkreel.analysis.metrics.partials.bursts import DEFAULT_GAP_NS
from blkreel.analysis.report import conditions as fail_if
from blkreel.analysis.report import present, terminal
from blkreel.analysis.report.document import entry
from blkreel.analysis.report.export import View
from blkreel.analysis.report.page.compare_page import Attached
from blkreel.analysis.report.page.drive_facts import chosen, models_of
from blkreel.analysis.scale import Fleet, ReadOptions, measure_fleet
from blkreel.analysis.scale.partial_cache import PartialCache
from blkreel.benchmarks.results.directory import is_test
from blkreel.cli.options import catalog as catalog_options
from blkreel.cli.options import completion, types
from blkreel.cli.options.detail import detail_options
from blkreel.cli.options.report import TRACE, page_options, print_result, read_options, reading
from blkreel.cli.ui.progress import progress
from blkreel.cli.ui.replay_summary import verdict_lines
from blkreel.common.console import Console, Detail, notice
from blkreel.common.errors import UsageError
from blkreel.common.files.storage_url import Location, StorageUrl
from blkreel.common.printable import printable

if TYPE_CHECKING:
    from blkreel.benchmarks.present import NamedResults


@click.command()
@click.argument("runs", nargs=-1, type=TRACE, shell_complete=completion.traces)
@catalog_options.catalog
@catalog_options.drive
@catalog_options.workload
@click.option("--add", is_flag=True, help="Also add RUNS to the catalog, after the comparison.")
@click.option("--fail-if", "conditions", multiple=True, metavar="CONDITION",
              shell_complete=completion.metrics,
              help="Return exit code 4 if this is true: 'read_response_p99 > +20%', 'read_p99 > 2ms'. Repeatable.")
@click.option("--base", type=types.LABEL, metavar="LABEL",
              help="The drive that --fail-if compares the others with. [default: the first]")
@click.option("--drop-invalid", is_flag=True, help="Leave out invalid runs; page, table and JSON list them.")
@types.allow_simulated
@page_options
@detail_options("why", "everything")
@read_options
def command(runs: tuple[Location, ...], catalog: Path | None, drive_texts: tuple[str, ...],
            workload_texts: tuple[str, ...], add: bool, conditions: tuple[str, ...], base: str | None,
            drop_invalid: bool, allow_simulated: bool, output: Path | None, figure: str | None, gap_ns: int,
            force: bool, as_json: bool, view: View, detail: Detail, read_options: ReadOptions) -> int:
    """Compare runs, traces or benchmarks of several drives as a table and a page.

    RUNS: directories of `blkreel replay`, or traces. Runs of the same drive, state and pace count as repetitions.
    Different traces and paces get separate charts. Or directories of `blkreel test`. Several benchmarks, or runs and
    benchmarks together, make one page with a matrix of drives and workloads.

    With --catalog, results of a catalog join that have the same workload, pace, state and limits of fidelity; those
    left out are counted by reason. Without RUNS, results of the catalog are compared with each other.

    \b
    blkreel compare run-a/ run-b/ -o compare.html
    blkreel compare runs/*/ -o compare.html --force --highlight "WD Black" --drives drives.toml
    blkreel compare runs/*/ --format png -o pictures/
    blkreel compare runs/ --drop-invalid --why
    blkreel compare run-a/ run-b/ --json
    blkreel compare tests/mixed-burst-a/ tests/mixed-burst-b/
    blkreel compare tests/*/ -o benchmarks.html
    blkreel compare runs/*/ tests/*/ -o review.html --highlight "WD Black"
    blkreel compare new-run/ --catalog catalog/ --add
    blkreel compare --catalog catalog/ --workload "game load" -o game-load.html
    blkreel compare old/*/ new/*/ --fail-if 'read_response_p99 > +20%' --fail-if 'read_wait > +10%'
    """
    parsed = [fail_if.parse(condition) for condition in conditions]
    if base is not None and not parsed:
        raise UsageError("--base: no condition to apply it to", "add for example --fail-if 'read_wait > +10%'")
    if allow_simulated and not parsed:
        raise UsageError("--allow-simulated: no condition to apply it to",
                         "add for example --fail-if 'read_wait > +10%'")
    if catalog is None and (not runs or drive_texts or workload_texts or add):
        option = "--drive" if drive_texts else "--workload" if workload_texts else "--add" if add else ""
        if not option:
            raise UsageError("no runs given", "name runs, or results: blkreel compare --catalog DIR")
        raise UsageError(f"{option}: no catalog given", "add --catalog DIR")
    if catalog is not None and gap_ns != DEFAULT_GAP_NS:
        raise UsageError("--gap: results of a catalog have bursts by the default gap", "leave out --gap, or --catalog")
    named_tests = [path for path in runs if is_test(path)]
    named_runs = [path for path in runs if path not in named_tests]
    if add and any(isinstance(path, StorageUrl) for path in runs):
        raise UsageError("--add takes runs and tests of this machine", "copy them here first")
    view.check(output, force)
    tests = _read_tests(named_tests)
    fleet, joined = Fleet([], [], PartialCache().report(0)), None
    if named_runs:
        with reading() as on_rows:
            fleet = measure_fleet(named_runs, gap_ns=gap_ns, read_options=read_options, on_rows=on_rows)
    own = [*(measured.path for measured in fleet.measured), *named_tests]
    if catalog is not None:
        from blkreel.benchmarks.catalog.comparison import join

        joined = join(catalog_options.opened(catalog, create=add), fleet.measured, tests,
                      drive_texts, workload_texts)
        fleet = Fleet([*fleet.measured, *joined.runs], [*fleet.notes, *joined.notes], fleet.cache)
        tests += joined.tests
        if not fleet.measured and not tests:
            raise UsageError(f"{catalog} has no results to compare", "add some: blkreel results add RUN")
    attached: list[Attached] = []
    catalog_lines = joined.lines(detail.why) if joined else []
    if tests and not fleet.measured and len({(results["test"], results["report"]) for _, results in tests}) > 1:
        if parsed or drop_invalid:
            option = "--fail-if" if parsed else "--drop-invalid"
            raise UsageError(f"{option}: these are several benchmarks without runs",
                             "compare the results of one benchmark, or add runs")
        from blkreel.benchmarks.present import attached_results

        document = present.compare_attached(attached_results(tests), output, force=force, view=view)

        def show(console: Console) -> None:
            console.print_lines(terminal.benchmark_lines(document, console.width))
            console.print_lines(_benchmark_verdicts(document, detail, console.width))
    elif tests and not fleet.measured:
        if drop_invalid:
            raise UsageError("--drop-invalid leaves out runs, and these are benchmarks", "leave out --drop-invalid")
        from blkreel.benchmarks.present import compare_results
        from blkreel.cli.ui import benchmark_summary

        document = compare_results(tests, output, force=force, view=view)

        def show(console: Console) -> None:
            benchmark_summary.show(document, console, detail)
    else:
        entry_of = entry
        if tests:  # with the recipes, slow to load
            from blkreel.benchmarks.present import attached_results

            attached = attached_results(tests)
        if joined:
            from blkreel.benchmarks.catalog.stored import entry as entry_of
        document = present.compare_fleet(fleet, output, force=force, view=view, read_options=read_options,
                                         drop_invalid=drop_invalid, attached=attached, entry_of=entry_of)

        def show(console: Console) -> None:
            verdicts = _benchmark_verdicts(document, detail, console.width)
            more_lines = len(verdicts) + len(catalog_lines) + (1 if output else 0)
            under_test = chosen(view.highlight, models_of(document["sections"]))
            console.print_lines(terminal.comparison_lines(document, detail, console.width, more_lines, under_test))
            console.print_lines(verdicts)

    def show_with_catalog(console: Console) -> None:
        show(console)
        console.print_lines(escape(printable(line)) for line in catalog_lines)

    outcomes = fail_if.check(document, parsed, base, allow_simulated,
                             [attachment.score for attachment in attached]) if parsed else []
    if parsed:
        document["fail_if"] = [outcome.document() for outcome in outcomes]
    if joined:
        document["catalog"] = joined.document()
    print_result(document, show_with_catalog, output, as_json, view, figure)
    unreadable = [omission for omission in joined.left_out if omission.reason == "unreadable"] if joined else []
    for left_out in unreadable:
        notice(f"left out: {left_out.text}")
    has_sections = len({outcome.section for outcome in outcomes}) > 1
    for outcome in outcomes if not as_json else ():
        click.echo(fail_if.words(outcome, has_sections), err=True)
    if outcomes and joined and base is None and (label := _only_named(document, own)):
        notice(f"--fail-if compares results of the catalog with {label}, the first drive named; to check {label}, name "
               "another one with --base")
    if joined and add:
        for path in own:
            result, what = joined.catalog.add(Path(str(path)))
            notice(f"{what}: {result['id'][:12]} {result['label']}, from {path}")
        joined.catalog.refresh()
    return fail_if.exit_code(outcomes) or (types.NOT_TRUSTWORTHY if unreadable else 0)


def _only_named(document: Mapping[str, Any], own: Sequence[Location]) -> str:
    """The label of the base, if all runs that were named are of it; empty otherwise, and without runs."""
    paths = set(map(str, own))
    labels = {entry["label"] for section in document.get("sections", ()) for entry in section["entries"]
              if any(run["path"] in paths for run in entry["runs"])}
    bases = {section["base"] for section in document.get("sections", ())}
    return labels.pop() if len(labels) == 1 and labels == bases else ""


def _benchmark_verdicts(document: Mapping[str, Any], detail: Detail, width: int) -> list[str]:
    """`qd1: qualified: quick: shortened`: of each benchmark that is compared beside others or beside runs."""
    lines = []
    for results in document.get("benchmarks") or []:
        title = f"{results['test'] or results['report']}: "
        first, *more = verdict_lines(results["verdict"], detail, width - len(title))
        lines += [escape(line) for line in (title + first, *(f"  {line}" for line in more))]
    return lines


def _read_tests(tests: list[Location]) -> "list[NamedResults]":
    if not tests:
        return []
    from blkreel.benchmarks.present import read_tests

    order = {str(path): index for index, path in enumerate(tests)}
    with progress("reading", total=len(tests)) as task:
        return read_tests(tests, lambda path, done, total: task.update(
            order[path] + done / max(1, total), f"{path}: {done} of {total} steps"))
