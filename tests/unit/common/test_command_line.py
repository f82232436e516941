"""Printed commands work when pasted: the program is found, and sudo is there where it is needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from blkreel.cli.command_table import COMMANDS
from blkreel.common import command_line
from blkreel.common.command_line import AS_ROOT, as_typed

PROGRAM = Path(sys.executable).with_name("blkreel")
NEXT = "next: blkreel report runs/a"


@pytest.fixture
def user(monkeypatch):
    """An ordinary user whose shell does not find blkreel."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


@pytest.fixture
def root(user, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_a_program_called_by_its_path(user):
    assert as_typed(NEXT, [str(PROGRAM), "replay"]) == f"next: {PROGRAM} report runs/a"
    relative = os.path.relpath(PROGRAM)
    assert as_typed(NEXT, [relative, "replay"]) == f"next: {relative} report runs/a"


def test_a_program_that_the_shell_finds_is_called_by_name_and_for_sudo_by_its_whole_path(user, monkeypatch):
    monkeypatch.setenv("PATH", f"{PROGRAM.parent}:/usr/bin:/bin")
    assert as_typed(NEXT, [str(PROGRAM), "replay"]) == NEXT
    assert as_typed(AS_ROOT, [str(PROGRAM), "top"]) == f"run as root: sudo {PROGRAM} top"


def test_sudo_finds_an_installed_program_by_name(user, monkeypatch, tmp_path):
    installed = tmp_path / "blkreel"
    installed.symlink_to(PROGRAM)
    monkeypatch.setattr(command_line, "_SUDO_PATH", str(tmp_path))
    assert as_typed(AS_ROOT, [str(installed), "top"]) == "run as root: sudo blkreel top"


def test_the_running_command_is_repeated_with_its_arguments(user):
    argv = [str(PROGRAM), "capture", "-o", "my trace.parquet", "--", "sh", "-c", "ls; ls"]
    assert as_typed(AS_ROOT, argv) == (
        f"run as root: sudo {PROGRAM} capture -o 'my trace.parquet' -- sh -c 'ls; ls'")


def test_a_program_that_uses_the_package_is_not_the_command(user):
    assert as_typed(AS_ROOT, ["notebook.py", "--port", "1"]) == AS_ROOT


def test_root_needs_no_sudo(root):
    assert as_typed("run: sudo blkreel doctor", [str(PROGRAM)]) == f"run: {PROGRAM} doctor"


def test_a_caller_of_sudo_needs_it_again_for_drives_only(root, monkeypatch):
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setenv("SUDO_GID", "1000")
    assert as_typed("then: blkreel replay t --on /dev/sdx", [str(PROGRAM)]) == (
        f"then: sudo {PROGRAM} replay t --on /dev/sdx")
    assert as_typed(NEXT, [str(PROGRAM), "replay"]) == f"next: {PROGRAM} report runs/a"


@pytest.mark.parametrize("text", ["a label blkreelreport", "/opt/blkreel report", "of blkreel and", "blkreel: done"])
def test_other_text_stays(user, text):
    assert as_typed(text, [str(PROGRAM)]) == text


def test_every_command_is_recognized():
    assert set(command_line.COMMANDS) == set(COMMANDS)


def test_a_printed_remedy_works_when_pasted(tmp_path):
    """From a directory of its own, with a shell that does not find the program."""
    environment = {"PATH": "/usr/bin:/bin", "BLKREEL_STATE_DIR": str(tmp_path)}
    failed = subprocess.run([PROGRAM, "replay", "sample:game-small", "--on", "/dev/no-such-drive", "-o", "run"],
                            capture_output=True, text=True, cwd=tmp_path, env=environment)
    remedy = failed.stderr.strip().rpartition(": ")[2]
    assert remedy.endswith("blkreel drives"), failed.stderr
    subprocess.run(remedy, shell=True, check=True, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)


def test_a_command_with_a_name_that_is_no_text_works_when_pasted():
    """Of a run in `r\\xff\\nq`, `next: blkreel report` had a question mark and a line break."""
    name = b"r\xff\nq'\\ \x1b[1m"
    line = command_line.command_line("report", os.fsdecode(name), "plain")
    assert line.isprintable() and line.endswith(" plain")
    pasted = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True).stdout
    assert pasted.split(b"\0")[-3] == name
