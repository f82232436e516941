"""`blkreel results add`: runs and tests into a catalog."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from blkreel.analysis.scale.dataset import expand
from blkreel.benchmarks.results.directory import is_test
from blkreel.cli.options import catalog as options
from blkreel.cli.options import completion
from blkreel.cli.options.types import as_json
from blkreel.cli.ui.progress import progress
from blkreel.common.console import notice
from blkreel.common.errors import BlkreelError
from blkreel.common.files.json_file import print_json
from blkreel.common.printable import printable
from blkreel.common.progress import ProgressTask


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="RUN|TEST...", shell_complete=completion.traces)
@options.catalog
@click.option("--host", metavar="NAME", help="Name of the machine that ran them. [default: this machine]")
@as_json
def command(paths: tuple[str, ...], catalog: Path | None, host: str | None, as_json: bool) -> int:
    """Add runs and tests to a catalog, with their metrics and what comparisons compute them from.

    The same result twice is one. Adding it again replaces it if its verdict or metrics differ now. A path that cannot
    be added is named, the others are added, and the exit code is 1.

    \b
    blkreel results add runs/a tests/qd1
    blkreel results add runs/ --catalog catalog/ --host lab-3
    """
    opened = options.opened(catalog, create=True)
    added: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    results = _results_of(paths, failed)
    with progress("adding", total=max(1, len(results))) as task:
        for index, path in enumerate(results):
            try:
                result, what = opened.add(path, host=host, on_step=partial(_show, task, index, str(path)))
            except BlkreelError as error:
                failed.append(_failure(path, error))
            else:
                added.append({"id": result["id"], "what": what, "label": result["label"],
                              "workload": result["workload"]["title"], "verdict": result["verdict"]["level"],
                              "path": str(path)})
    opened.refresh()
    for failure in failed:
        notice("; ".join(filter(None, (f"not added: {failure['message']}", failure["remedy"]))))
    if as_json:
        print_json({"version": 1, "catalog": str(opened.directory), "results": added, "failed": failed})
    else:
        for line in added:
            print(printable(f"{line['what']:9}  {line['id'][:12]}  {line['label']}, {line['workload']}, "
                            f"{line['verdict']}"))
        counts = [f"{count} {what}" for what in ("added", "replaced", "unchanged")
                  if (count := sum(result["what"] == what for result in added))]
        print(printable(f"{opened.directory}: {', '.join(counts) or 'nothing added'}"))
    return 1 if failed else 0


def _show(task: ProgressTask, index: int, path: str, done: int, total: int) -> None:
    task.update(index + done / max(1, total), path)


def _results_of(paths: tuple[str, ...], failed: list[dict[str, Any]]) -> list[Path]:
    """Directories of runs and tests, in order, each once: also those within a directory that is neither."""
    results: dict[Path, None] = {}
    for path in paths:
        if is_test(path):
            results[Path(path)] = None
            continue
        try:
            dataset = expand([path])
        except BlkreelError as error:
            if not (inside := [test for test in sorted(Path(path).glob("*")) if is_test(test)]):
                failed.append(_failure(path, error))
            results |= dict.fromkeys(inside)
        else:
            results |= dict.fromkeys([*(Path(str(location)) for location in dataset.locations),
                                      *map(Path, dataset.tests)])
    return list(results)


def _failure(path: object, error: BlkreelError) -> dict[str, Any]:
    return {"path": str(path), "code": error.code, "message": error.message, "remedy": error.remedy}
