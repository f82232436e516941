"""The files that the examples of the docs use, made once."""

import pytest
from documented import make_runs, run_blkreel


@pytest.fixture(scope="session")
def examples(tmp_path_factory, command_server):
    """A directory with game.parquet, runs/fast, runs/slow and tests/qd1."""
    directory = tmp_path_factory.mktemp("docs")
    make_runs(command_server, directory)
    (directory / "tests").mkdir()
    # The docs show figures of queue depth 1 only.
    run_blkreel(command_server, directory, "test", "qd1", "--quick", "--on", "nil:1GiB,clock=virtual", "-o",
                "tests/qd1", "--set", "time=200ms", "--set", "block_time=100ms", "--set", "depths=1")
    return directory
