import pytest
from small_benchmark import runner_of

from blkreel.replay.drive.target import find_target


@pytest.fixture
def target():
    return find_target("nil:64MiB")


@pytest.fixture
def a_test(tmp_path, target):
    """Makes the runner of a small test, or resumes the test that was begun."""
    return lambda *arguments, on=target, **options: runner_of(tmp_path / "out", on, *arguments, **options)
