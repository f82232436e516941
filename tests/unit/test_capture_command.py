"""The words of `blkreel capture`, and the user its command runs as."""

import os
import pwd
import threading
from pathlib import Path

import click
import pytest

from blkreel.capture.workload import Workload, refuse_missing, user_of_command
from blkreel.cli.capture import command
from blkreel.traces.errors import UsageError


def parsed(*arguments):
    context = command.make_context("capture", list(arguments))
    return context.params, context.meta["blkreel.command"]


def test_what_stands_behind_the_dashes_is_the_commands_own():
    params, words = parsed("/dev/x", "-o", "t", "--", "prog", "--for", "x", "--", "-o")
    assert params["devices"] == ("/dev/x",)
    assert params["duration_ns"] is None
    assert words == ["prog", "--for", "x", "--", "-o"]


def test_sizes_and_times_are_those_of_people():
    params, words = parsed("-o", "t", "--path", ".", "--for", "1.5min", "--ring-size", "64MiB")
    assert (params["duration_ns"], params["ring_bytes"], words) == (90 * 10**9, 64 << 20, [])


def test_dashes_without_a_command_are_refused():
    with pytest.raises(click.UsageError, match="no command"):
        parsed("-o", "t", "--")


def test_a_missing_command_is_refused():
    with pytest.raises(UsageError, match="no such command"):
        refuse_missing(["blkreel-there-is-no-such-thing"])


def test_the_caller_of_sudo_runs_the_command(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    nobody = pwd.getpwnam("nobody")
    monkeypatch.setenv("SUDO_UID", str(nobody.pw_uid))
    assert user_of_command(None).pw_name == "nobody"
    assert user_of_command("root").pw_name == "root"
    monkeypatch.setenv("SUDO_UID", "0")
    assert user_of_command(None) is None
    monkeypatch.delenv("SUDO_UID")
    assert user_of_command(None) is None


@pytest.mark.parametrize("script, code", [("exit 0", 0), ("exit 3", 3), ("kill -15 $$", 143)])
def test_exit_codes_are_those_of_a_shell(script, code):
    ended = threading.Event()
    workload = Workload(["sh", "-c", script], None)
    workload.release(ended.set)
    assert ended.wait(30)
    assert workload.exit_code == code


def test_a_command_does_not_run_before_it_is_released(tmp_path):
    ended = threading.Event()
    workload = Workload(["sh", "-c", f"echo $$ > {tmp_path}/pid"], None)
    assert Path(f"/proc/{workload.pid}").exists()
    workload.release(ended.set)
    assert ended.wait(30)
    assert int((tmp_path / "pid").read_text()) == workload.pid, "it is the process that was made"


def test_a_command_that_is_abandoned_never_runs(tmp_path):
    workload = Workload(["touch", tmp_path / "ran"], None)
    workload.abandon()
    assert not Path(f"/proc/{workload.pid}").exists()
    assert not (tmp_path / "ran").exists()
