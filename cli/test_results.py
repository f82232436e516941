"""The results of a test, worked out and kept beside it."""

from pathlib import Path

from blkreel.analysis.results import results_of
from blkreel.cli.progress import progress
from blkreel.traces.errors import BlkreelError
from blkreel.traces.json_file import write_json


def write_results(directory: Path) -> dict:
    """Work the figures out, and keep them beside the test."""
    with progress("working the figures out") as task:
        document = results_of(directory, lambda done, total: task.update(done, f"step {done} of {total}"))
    try:
        write_json(directory / "results.json", document)
    except OSError as error:
        raise BlkreelError(f"cannot write {directory / 'results.json'}: {error.strerror}",
                           f"make room there, then: blkreel report {directory}") from error
    return document
