"""Directories of emulated drives in /run."""

import pytest

from blkreel.common.errors import UsageError
from blkreel.replay.emulated.directory import claimed, link, sweep


@pytest.fixture
def places(tmp_path):
    return tmp_path / "run", tmp_path / "dev"


def test_a_name_belongs_to_one_drive(places):
    run, links = places
    with claimed("sata", run, links) as (directory, _):
        assert (directory / "drive").is_file()
        assert link("sata", "/dev/null", links).resolve().name == "null"
        sweep(run, links)  # held by a lock
        with pytest.raises(UsageError, match="sata runs already"), claimed("sata", run, links):
            pass
        with claimed("nvme", run, links):
            pass
        assert directory.is_dir()
    assert not directory.exists() and not links.exists()


def test_what_a_killed_drive_left_is_removed(places):
    run, links = places
    (run / "old").mkdir(parents=True)
    (run / "old/lock").touch()
    (run / "other").mkdir()  # not of a drive
    link("old", "/dev/null", links)
    sweep(run, links)
    assert [path.name for path in run.iterdir()] == ["other"]
    assert not links.exists()


def test_a_failed_start_leaves_nothing(places):
    with pytest.raises(KeyError), claimed("sata", *places):
        raise KeyError
    assert list(places[0].iterdir()) == []
