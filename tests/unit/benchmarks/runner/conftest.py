import pytest
from small_benchmark import runner_of

from blkreel.replay.drive.target import find_target


@pytest.fixture(autouse=True)
def state_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("BLKREEL_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def target():
    return find_target("nil:64MiB")


@pytest.fixture
def a_test(tmp_path, target):
    """Makes the runner of a small test, or resumes the test that was begun."""
    return lambda *arguments, on=target, **options: runner_of(tmp_path / "out", on, *arguments, **options)
