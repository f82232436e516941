"""Where programs of other packages are searched, limits of control groups, and signals."""

import os
import signal

from blkreel.common.system import ROOT_DIRECTORIES, find_program, handled_signals, io_max


def test_root_takes_no_program_from_path(tmp_path, monkeypatch):
    """sudo and services may pass a PATH that others can write to."""
    (tmp_path / "nvme-of-tests").write_text("#!/bin/sh\n")
    (tmp_path / "nvme-of-tests").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert find_program("nvme-of-tests") is None
    assert find_program("sh") in {f"{directory}/sh" for directory in ROOT_DIRECTORIES}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert find_program("nvme-of-tests") == str(tmp_path / "nvme-of-tests")


def test_programs_of_administrators_are_found_without_them_in_path(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert find_program("losetup") in ("/usr/sbin/losetup", "/sbin/losetup")


def test_the_limits_of_a_control_group_are_those_of_its_parents_too(tmp_path):
    group = tmp_path / "machine.slice/one"
    group.mkdir(parents=True)
    (tmp_path / "own").write_text("1:name=systemd:/other\n0::/machine.slice/one\n")
    (group / "io.max").write_text("8:0 rbps=max wbps=max riops=10 wiops=max\n"
                                  "259:1 rbps=max wbps=1000000 riops=200 wiops=max\n")
    (group.parent / "io.max").write_text("259:1 rbps=max wbps=2000000 riops=100 wiops=300\n")
    (tmp_path.parent / "io.max").write_text("259:1 rbps=1 wbps=1 riops=1 wiops=1\n")
    limits = {"wbps": 1_000_000, "riops": 100, "wiops": 300}
    assert io_max("259:1", root=tmp_path, own=tmp_path / "own") == io_max("259:1", group, tmp_path) == limits
    assert io_max("259:2", group, tmp_path) == io_max("259:1", tmp_path / "gone", tmp_path) == {}


def test_the_limits_of_a_control_group_of_version_1_are_its_own(tmp_path):
    group = tmp_path / "blkio/machine/one"
    group.mkdir(parents=True)
    (tmp_path / "own").write_text("9:cpu,cpuacct:/other\n4:blkio:/machine/one\n0::/\n")
    (group / "blkio.throttle.write_iops_device").write_text("8:0 7\n259:1 300\n")
    (group / "blkio.throttle.read_bps_device").write_text("259:1 1000000\n")
    (group.parent / "blkio.throttle.read_iops_device").write_text("259:1 1\n")
    assert io_max("259:1", root=tmp_path, own=tmp_path / "own") == {"wiops": 300, "rbps": 1_000_000}
    assert io_max("259:2", root=tmp_path, own=tmp_path / "own") == {}


def test_signals_are_handled_for_a_while_and_a_hangup_that_nohup_ignores_stays_ignored():
    received, before = [], signal.getsignal(signal.SIGHUP)
    handlers = dict.fromkeys((signal.SIGUSR2, signal.SIGHUP), lambda number, frame: received.append(number))
    try:
        for ignored in (False, True):
            signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
            with handled_signals(handlers):
                os.kill(os.getpid(), signal.SIGHUP)
                os.kill(os.getpid(), signal.SIGUSR2)
            assert signal.getsignal(signal.SIGHUP) is (signal.SIG_IGN if ignored else signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert received == [signal.SIGHUP, signal.SIGUSR2, signal.SIGUSR2]
