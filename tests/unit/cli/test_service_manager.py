"""A capture as a service: it reports when it records, and a flight recorder logs no progress."""

import socket
from pathlib import Path

import pytest

from blkreel.capture.options import CaptureOptions
from blkreel.cli.commands.capture import _Monitor, _monitored, notify_ready


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
