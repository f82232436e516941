"""`blkreel compare`: many runs side by side."""

import click

from blkreel.analysis import fail_if, present, table
from blkreel.analysis.results import is_test
from blkreel.cli import test_shown
from blkreel.cli.pages import page_options, reading, result
from blkreel.cli.progress import progress
from blkreel.cli.scale_options import TRACE, scale_options
from blkreel.traces.errors import UsageError


@click.command()
@click.argument("runs", nargs=-1, required=True, type=TRACE)
@click.option("--fail-if", "conditions", multiple=True, metavar="CONDITION",
              help="End with exit code 4 where this holds: 'wait_time > +10%', 'read_p99 > 2ms'. Repeatable.")
@click.option("--base", metavar="LABEL",
              help="The drive that --fail-if compares the others with. Without it, the first that is named.")
@page_options
@scale_options
def command(runs, conditions, base, output, figure, gap_ns, force, as_json, view, way):
    """Show runs or traces side by side as a page and a table, each drive and pace apart.

    RUNS are directories made by `blkreel replay -o`, or traces. Runs of one drive, state and pace count as
    repetitions; figures of different traces or paces never stand in one chart. Or all of them are directories of one
    test, made by `blkreel test -o`: then its results stand side by side.

    \b
    blkreel compare run-a/ run-b/ -o compare.html
    blkreel compare runs/*/ -o compare.html --force --highlight "WD Black" --drives drives.toml
    blkreel compare runs/*/ --format png -o pictures/
    blkreel compare run-a/ run-b/ --json
    blkreel compare tests/mixed-burst-a/ tests/mixed-burst-b/
    blkreel compare old/*/ new/*/ --fail-if 'wait_time > +10%' --fail-if 'read_throughput < -5%'
    """
    conditions = [fail_if.parse(each) for each in conditions]
    if base is not None and not conditions:
        raise UsageError("--base is for --fail-if", "add a condition, such as --fail-if 'wait_time > +10%'")
    tests = [path for path in runs if is_test(path)]
    if tests:
        if len(tests) < len(runs):
            other = next(path for path in runs if path not in tests)
            raise UsageError(f"{tests[0]} is a test, {other} is not",
                             f"compare tests with tests; runs of its steps are {tests[0]}/steps/*")
        with progress("reading", total=len(tests)) as task:
            order = {str(path): index for index, path in enumerate(tests)}
            document = present.compare_tests(
                tests, output, force=force, view=view, on_step=lambda path, done, total: task.update(
                    order[path] + done / max(1, total), f"{path}: {done} of {total} steps"))
        outcomes = _checked(document, conditions, base)
        result(document, test_shown.show, output, as_json, view, figure)
        return _ended(outcomes, as_json)
    with reading() as on_rows:
        document = present.compare(runs, output, gap_ns=gap_ns, force=force, on_rows=on_rows, view=view, way=way)
    outcomes = _checked(document, conditions, base)
    result(document, table.show_comparison, output, as_json, view, figure)
    return _ended(outcomes, as_json)


def _checked(document, conditions, base):
    """The outcomes; in the document too, where conditions were given."""
    outcomes = fail_if.check(document, conditions, base) if conditions else []
    if conditions:
        document["fail_if"] = [outcome.shown() for outcome in outcomes]
    return outcomes


def _ended(outcomes, as_json):
    """The exit code; what decided it goes to stderr, so that a log has it whatever stdout is for."""
    for outcome in outcomes if not as_json else ():
        click.echo(fail_if.words(outcome), err=True)
    return fail_if.exit_code(outcomes)
