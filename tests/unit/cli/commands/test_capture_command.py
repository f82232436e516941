"""The words of `blkreel capture`, the user its command runs as, and a capture as a service."""

import os
import pwd
import socket
import threading
from pathlib import Path

import click
import numpy as np
import pytest
from small_trace import new_trace

from blkreel.capture.command import Workload, refuse_missing, user_of_command
from blkreel.capture.options import CaptureOptions
from blkreel.cli.commands.capture import _Monitor, _monitored, command, exit_code, notify_ready, why_empty
from blkreel.common.errors import UsageError
from blkreel.traces.format.schema import FLAGS


def parsed(*arguments):
    context = command.make_context("capture", list(arguments))
    return context.params, context.meta["blkreel.command"]


@pytest.mark.parametrize(("arguments", "options", "own"), [
    (["/dev/x", "-o", "t", "--", "prog", "--for", "x", "--", "-o"], {"devices": ("/dev/x",), "duration_ns": None},
     ["prog", "--for", "x", "--", "-o"]),
    (["-o", "t", "--path", ".", "--for", "1.5min", "--ring-size", "64MiB"],
     {"duration_ns": 90 * 10**9, "ring_bytes": 64 << 20}, []),
    (["-o", "t", "/dev/null", "--for", "1s"], {"devices": ("/dev/null",)}, [])],
    ids=["what stands behind the dashes is the command's own", "sizes and times", "a device is no command"])
def test_options_and_the_command(arguments, options, own):
    params, words = parsed(*arguments)
    assert options.items() <= params.items() and words == own


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
    assert ended.wait(300)
    assert workload.exit_code == code


def test_a_command_does_not_run_before_it_is_released(tmp_path):
    ended = threading.Event()
    workload = Workload(["sh", "-c", f"echo $$ > {tmp_path}/pid"], None)
    assert Path(f"/proc/{workload.pid}").exists()
    workload.release(ended.set)
    assert ended.wait(300)
    assert int((tmp_path / "pid").read_text()) == workload.pid, "it is the process that was made"


def test_a_command_that_is_abandoned_never_runs(tmp_path):
    workload = Workload(["touch", tmp_path / "ran"], None)
    workload.abandon()
    assert not Path(f"/proc/{workload.pid}").exists()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("words, corrected", [
    (["-o", "t", "ls", "-l"], "blkreel capture -o t -- ls -l"),
    (["-o", "t", "--path", ".", "./start game", "--flag"], "blkreel capture -o t --path . -- './start game' --flag"),
    (["/dev/null", "-o", "t", "ls", "/dev"], "blkreel capture /dev/null -o t -- ls /dev")])
def test_a_command_without_dashes_is_recognized(words, corrected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "start game").write_text("#!/bin/sh\n")
    (tmp_path / "start game").chmod(0o755)
    with pytest.raises(UsageError, match="is a program, not a device") as error:
        parsed(*words)
    assert error.value.remedy == f"put -- before it: {corrected}"


class Reads:
    """The result of a capture with the given rows of workload and other I/O."""

    def __init__(self, path, workload, others, command_exit_code=0, interrupted=False):
        count = workload + others
        new_trace(path, {}, submit_ns=np.arange(count), latency_ns=5, offset_bytes=0,
                  flags=np.array([FLAGS["own"]] * workload + [0] * others))
        self.path, self.ios = path, {"read": workload + others}
        self.metadata = {"devices": [{"path": "/dev/sdz"}], "source_format": "bpf:tp_btf"}
        self.command_exit_code, self.interrupted = command_exit_code, interrupted
        self.missing, self.trustworthy = [], True


@pytest.mark.parametrize("workload, others, command, cold, expected", [
    (0, 0, ["game"], False, ["no I/O on /dev/sdz", "page cache", "--cold"]),
    (0, 9, ["game"], False, ["no I/O of the command on /dev/sdz", "page cache", "--cold"]),
    (0, 9, ["game"], True, ["no I/O of the command on /dev/sdz", "--path DIR"]),
    (0, 0, [], False, ["no I/O on /dev/sdz during the capture"]),
    (1, 9, ["game"], False, []),
    (0, 9, [], False, [])])
def test_an_empty_capture_names_the_reason(tmp_path, workload, others, command, cold, expected):
    options = CaptureOptions(devices=[], output=tmp_path / "t.parquet", command=command, cold=cold)
    text = why_empty(options, Reads(tmp_path / "t.parquet", workload, others))
    assert bool(text) == bool(expected)
    for words in expected:
        assert words in text
    assert not (cold and "--cold" in text)


@pytest.mark.parametrize("others", [0, 9])
def test_io_that_kernel_threads_of_a_volume_issue_is_one_of_the_reasons(tmp_path, others):
    """As of dm-integrity with a journal, of which a capture said only that its data is in the page cache."""
    result = Reads(tmp_path / "t.parquet", 0, others)
    result.metadata["volumes"] = [{"path": "/dev/dm-0"}]
    text = why_empty(CaptureOptions(devices=[], output=result.path, command=["game"]), result)
    assert ("kernel threads of /dev/dm-0" in text and "--layer volume" in text) == bool(others)


@pytest.mark.parametrize("others, missing, metadata", [
    (0, ["its rows could not be written"], {"ring": {}}), (0, [], {"ring": {"dropped_rows": 9}}),
    *((9, [], {"source_format": name}) for name in ("ftrace:blk", "blktrace", "bpftrace"))])
def test_no_reason_is_named_of_lost_rows_and_by_a_source_that_does_not_know_the_command(tmp_path, others, missing,
                                                                                        metadata):
    result = Reads(tmp_path / "t.parquet", 0, others)
    result.missing = missing
    result.metadata |= metadata
    assert why_empty(CaptureOptions(devices=[], output=result.path, command=["game"]), result) == ""


@pytest.mark.parametrize("command, code, interrupted, expected", [
    (["game"], 130, True, 130), (["game"], 137, False, 137), (["game"], 0, True, 0), (["game"], None, True, 130),
    ([], None, True, 0)])
def test_exit_code_of_an_interrupted_command(tmp_path, command, code, interrupted, expected):
    assert exit_code(command, Reads(tmp_path / "t.parquet", 1, 0, code, interrupted)) == expected


def test_exit_code_of_a_capture_that_is_not_trustworthy(tmp_path):
    result = Reads(tmp_path / "t.parquet", 1, 0)
    result.trustworthy = False
    assert exit_code(["game"], result) == exit_code([], result) == 3
    result.command_exit_code = 7
    assert exit_code(["game"], result) == 7


@pytest.mark.parametrize("abstract", [False, True])
def test_a_capture_is_ready_when_it_records(tmp_path, monkeypatch, abstract):
    address = f"@blkreel{tmp_path}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address.replace("@", "\0"))
        manager.settimeout(300)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        _Monitor(None).begun()
        assert manager.recv(100) == b"READY=1"


def test_an_absent_service_manager_does_not_end_the_capture(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "absent"))
    notify_ready()
    assert f"NOTIFY_SOCKET={tmp_path}/absent: No such file or directory" in capsys.readouterr().err
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify_ready()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("limits, lines", [({}, True), ({"keep_ns": 10**9}, False), ({"max_bytes": 1 << 20}, False)])
def test_only_a_capture_with_an_end_prints_progress_lines(limits, lines):
    with _monitored(CaptureOptions(output=Path("t.parquet"), devices=["/dev/null"], **limits), None) as (monitor, _):
        assert (monitor._task is not None) == lines
