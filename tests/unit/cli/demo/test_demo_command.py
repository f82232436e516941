"""What `blkreel demo` refuses, each with its remedy, before it has made or removed anything."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from documents import valid_document

from blkreel.cli.demo import drives as demo_drives
from blkreel.cli.demo import run as demo_run
from blkreel.cli.demo import typical
from blkreel.cli.demo import workspace as demo_workspace
from blkreel.cli.demo.pairs import Pair, Pairs
from blkreel.cli.main import cli
from blkreel.common.errors import BlkreelError, SafetyError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: run `sudo make test`")


@pytest.mark.parametrize(("words", "asked"), [((), demo_run.FULL), (("--quick",), demo_run.QUICK)])
def test_its_document_names_what_it_wrote(monkeypatch, tmp_path, words, asked):
    def run_demo(output, work, size):
        assert size == asked
        (output / "runs/disk-load").mkdir(parents=True)
        for name in ("source.parquet", "runs/disk-load/records.parquet", "compare.html"):
            (output / name).touch()
        print("a step")
        return 3

    monkeypatch.setattr(demo_run, "run_demo", run_demo)
    result = CliRunner().invoke(cli, ["demo", "-o", str(tmp_path / "out"), "--json", *words])
    document = valid_document("demo", result.stdout)
    assert not document["trustworthy"] and document["runs"] == [str(tmp_path / "out/runs/disk-load")]
    assert "a step" in result.stderr


def test_without_root_it_replays_on_simulated_drives_and_says_what_it_leaves_out(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(demo_workspace, "_refuse_foreign", lambda path: None)
    monkeypatch.setattr(demo_run, "_compare", lambda steps, output, found: None)
    replayed = []
    monkeypatch.setattr(typical, "replay_all", lambda steps, trace, runs, options: replayed.append(trace) or [
        typical.TypicalDrive("usb", "USB stick", runs / "usb",
                             Pairs((Pair(1e9, 2e9, 1.0),), {"level": "valid", "reasons": [], "notes": [],
                                                            "withheld": []}))])
    assert demo_run.run_demo(tmp_path / "out", tmp_path, demo_run.QUICK) == 0
    assert replayed == ["sample:model-load"]
    lines = capsys.readouterr().out.splitlines()
    assert "emulated drive need root: sudo blkreel demo" in " ".join(" ".join(lines).split())
    assert lines[-1].startswith("Model load beside writes of 110 MB/s: from +100 % on USB stick")


def test_without_fuse_the_emulated_drive_is_left_out_with_the_reason(monkeypatch):
    def check_backends():
        raise BlkreelError("no /dev/fuse", "run: modprobe fuse")

    monkeypatch.setattr(demo_run, "check_backends", check_backends)
    assert demo_run._left_out(demo_run.FULL, has_root=True) == ["the emulated drive: no /dev/fuse; run: modprobe fuse"]


def test_without_memory_the_emulated_drive_is_left_out_with_the_reason(monkeypatch):
    monkeypatch.setattr(demo_run, "check_backends", lambda: None)
    monkeypatch.setattr(demo_run, "memory_bytes", lambda name: 100 << 20)
    (text,) = demo_run._left_out(demo_run.FULL, has_root=True)
    assert "105 MB of memory available" in text and text.endswith("stop other programs, or add --quick")


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
    with pytest.raises(BlkreelError, match="exists, and is not the output of a demo; name another output"):
        demo_run.run_demo(output, tmp_path, demo_run.QUICK)
    assert (output / name).read_text() == "mine"


def test_an_output_of_an_earlier_demo_is_replaced_but_not_what_lies_beside_it(tmp_path):
    output = tmp_path / "out"
    demo_run._make_output(output)
    (output / "source.parquet").write_text("old")
    run = output / "runs/disk-1"
    (run / ".records.parquet.spool").mkdir(parents=True)
    for name in ("records.parquet", "telemetry.parquet", ".records.parquet.spool/rows.blocks"):
        (run / name).write_text("old")
    for name in ("notes.txt", "runs/kept.txt"):
        (output / name).write_text("mine")
    demo_run._check_output(output, tmp_path / "work")
    demo_run._make_output(output)
    assert {entry.name for entry in output.iterdir()} == {demo_workspace.MARK, "runs", "notes.txt"}
    assert [entry.name for entry in (output / "runs").iterdir()] == ["kept.txt"]


def test_a_directory_that_cannot_be_made_is_named_with_the_option(tmp_path):
    nowhere = Path("/proc/demo")
    with pytest.raises(BlkreelError, match="cannot make /proc/demo: .*name another output with -o"):
        demo_run._make_output(nowhere)
    with pytest.raises(BlkreelError, match="cannot make /proc/.*name another directory: --work DIR"), \
            demo_workspace.workspace_below(Path("/proc")):
        pass


def test_an_output_within_the_demos_own_directory(tmp_path):
    with pytest.raises(BlkreelError, match="name another output"):
        demo_run._check_output(tmp_path / demo_workspace.WORKSPACE_NAME / "out", tmp_path)


@pytest.mark.parametrize(("take", "message"), [
    (lambda path: (path.mkdir(mode=0o700), (path / "thesis.tex").write_text("mine")),
     "has files that are not of a demo"),
    (lambda path: (path.mkdir(), path.chmod(0o777)), "only this user can write to"),
    (lambda path: path.symlink_to(path.parent / "elsewhere"), "only this user can write to")],
    ids=["files", "writable for others", "a link"])
def test_a_directory_of_that_name_that_is_not_a_demos_is_refused_and_stays(tmp_path, take, message):
    (tmp_path / "elsewhere").mkdir()
    taken = tmp_path / demo_workspace.WORKSPACE_NAME
    take(taken)
    before = list(taken.iterdir())
    with pytest.raises(SafetyError, match=message), demo_workspace.workspace_below(tmp_path):
        pass
    assert list(taken.iterdir()) == before


def test_a_second_demo_is_refused_while_the_first_runs(tmp_path):
    with demo_workspace.workspace_below(tmp_path) as workspace:
        (workspace.path / "work").touch()
        with pytest.raises(BlkreelError, match="another demo is running"), demo_workspace.workspace_below(tmp_path):
            pass
        assert (workspace.path / "work").exists()
    assert not (tmp_path / demo_workspace.WORKSPACE_NAME).exists()


def test_too_little_room_is_said_before_anything_is_made(tmp_path):
    with (demo_workspace.workspace_below(tmp_path) as workspace,
          pytest.raises(BlkreelError, match="free, .* required for disk images; add --work DIR")):
        demo_drives.check_room(workspace, disk_bytes=1 << 60)


@needs_root
def test_under_sudo_the_output_belongs_to_who_called_it(tmp_path, monkeypatch):
    output = tmp_path / "out"
    demo_run._make_output(output)
    (output / "outside").symlink_to(tmp_path / "foreign")
    (tmp_path / "foreign").touch()
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65533")
    demo_run._give_to_caller(output)
    for path in (output, output / "runs", output / demo_workspace.MARK, output / "outside"):
        assert (path.lstat().st_uid, path.lstat().st_gid) == (65534, 65533), path
    assert (tmp_path / "foreign").stat().st_uid == 0
