"""What `blkreel demo` refuses, each with its remedy, before it has made or removed anything."""

import os

import pytest

from blkreel.cli.demo import drives as demo_drives
from blkreel.cli.demo import place as demo_place
from blkreel.cli.demo import run as demo_run
from blkreel.traces.errors import BlkreelError, SafetyError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: run `sudo make test`")


def test_without_root(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BlkreelError, match="needs root; .*sudo make demo"):
        demo_run.run_demo(tmp_path / "out", tmp_path, demo_run.QUICK)
    assert not (tmp_path / "out").exists()


def test_without_a_program_it_names_the_package(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(demo_run, "_PROGRAMS", {"sh": "dash", "blkreel-no-such-program": "some-package"})
    monkeypatch.setenv("PATH", os.environ["PATH"])
    with pytest.raises(BlkreelError, match="blkreel-no-such-program; .*apt-get install some-package$"):
        demo_run.run_demo(tmp_path / "out", tmp_path, demo_run.QUICK)


@needs_root
@pytest.mark.parametrize("name", ["holiday.txt", "compare.html"])
def test_an_output_that_no_demo_made_stays(tmp_path, name):
    output = tmp_path / "out"
    output.mkdir()
    (output / name).write_text("mine")
    with pytest.raises(BlkreelError, match="exists, and no demo made it; name another output"):
        demo_run.run_demo(output, tmp_path, demo_run.QUICK)
    assert (output / name).read_text() == "mine"


def test_an_output_of_an_earlier_demo_is_replaced_but_not_what_lies_beside_it(tmp_path):
    output = tmp_path / "out"
    demo_run._make_output(output)
    (output / "source.parquet").write_text("old")
    (output / "runs/old").mkdir()
    (output / "notes.txt").write_text("mine")
    demo_run._check_output(output, tmp_path / "work")
    demo_run._make_output(output)
    assert {entry.name for entry in output.iterdir()} == {demo_place.MARK, "runs", "notes.txt"}
    assert not list((output / "runs").iterdir())


def test_an_output_within_the_demos_own_directory(tmp_path):
    with pytest.raises(BlkreelError, match="name another output"):
        demo_run._check_output(tmp_path / demo_place.PLACE_NAME / "out", tmp_path)


def test_a_directory_of_that_name_that_is_not_a_demos_stays(tmp_path):
    taken = tmp_path / demo_place.PLACE_NAME
    taken.mkdir(mode=0o700)
    (taken / "thesis.tex").write_text("mine")
    with pytest.raises(SafetyError, match="holds files that no demo made"), demo_place.place_below(tmp_path):
        pass
    assert (taken / "thesis.tex").exists()


def test_a_directory_that_others_can_write_to_is_refused(tmp_path):
    taken = tmp_path / demo_place.PLACE_NAME
    taken.mkdir()
    taken.chmod(0o777)
    with pytest.raises(SafetyError, match="only this user writes to"), demo_place.place_below(tmp_path):
        pass


def test_a_link_of_that_name_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / demo_place.PLACE_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SafetyError), demo_place.place_below(tmp_path):
        pass


def test_a_second_demo_is_refused_while_the_first_runs(tmp_path):
    with demo_place.place_below(tmp_path) as place:
        (place.path / "work").touch()
        with pytest.raises(BlkreelError, match="another demo is running"), demo_place.place_below(tmp_path):
            pass
        assert (place.path / "work").exists()
    assert not (tmp_path / demo_place.PLACE_NAME).exists()


def test_too_little_room_is_said_before_anything_is_made(tmp_path):
    with demo_place.place_below(tmp_path) as place:
        with pytest.raises(BlkreelError, match="free, and the disk images take .*; add --work DIR"):
            demo_drives.check_room(place, disk_bytes=1 << 60, memory_bytes=0)
        with pytest.raises(BlkreelError, match="memory are free"):
            demo_drives.check_room(place, disk_bytes=0, memory_bytes=1 << 60)


@needs_root
def test_under_sudo_the_output_belongs_to_who_called_it(tmp_path, monkeypatch):
    output = tmp_path / "out"
    demo_run._make_output(output)
    (output / "outside").symlink_to(tmp_path / "foreign")
    (tmp_path / "foreign").touch()
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65533")
    demo_run._give_to_caller(output)
    for path in (output, output / "runs", output / demo_place.MARK, output / "outside"):
        assert (path.lstat().st_uid, path.lstat().st_gid) == (65534, 65533), path
    assert (tmp_path / "foreign").stat().st_uid == 0
