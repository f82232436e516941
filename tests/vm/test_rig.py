"""The rig itself: whatever goes wrong in a guest is a failure on the host, and no guest outlives its time."""

import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
RUN = CHECKOUT / "tests/vm/run.py"

if "BLKREEL_TEST_RIG" not in os.environ:
    pytest.skip("boots guests: make test-vm", allow_module_level=True)
if not list(CHECKOUT.glob(".vm/*/initramfs.gz")):
    pytest.skip("needs a guest's kernel: make test-vm", allow_module_level=True)


def guest(*arguments):
    began = time.monotonic()
    result = subprocess.run([sys.executable, RUN, "--kernel", "linux-image-amd64", *arguments], capture_output=True,
                            text=True, timeout=280)
    return result.returncode, result.stdout + result.stderr, time.monotonic() - began


def test_exit_code_and_output_come_through_and_the_host_is_read_only():
    code, output, _ = guest("--command", f"echo from $(hostname); ls /dev/nvme0n1; touch {CHECKOUT}/by-guest; exit 7")
    assert code == 7
    assert "from guest" in output and "/dev/nvme0n1" in output
    assert "Read-only file system" in output and not (CHECKOUT / "by-guest").exists()


def test_a_test_that_fails_in_the_guest_fails_on_the_host(tmp_path):
    (tmp_path / "test_one.py").write_text("def test_that_fails():\n    assert 'wanted' == 'found'\n")
    code, output, _ = guest("-c", "/dev/null", "-p", "no:timeout", str(tmp_path / "test_one.py"))
    assert code == 1
    assert "test_that_fails" in output and "1 failed" in output


def test_a_guest_that_hangs_is_ended():
    code, output, took_s = guest("--timeout", "20", "--command", "sleep 1000")
    assert code == 1
    assert "had not ended after 20 s" in output
    assert took_s < 200


def test_a_guest_that_falls_silent_is_ended_as_one_that_fell_over(tmp_path, monkeypatch):
    """As one does whose emulation fails: it would hold up the tests until their whole time is over."""
    monkeypatch.syspath_prepend(RUN.parent)
    qemu = import_module("qemu")
    program = tmp_path / "qemu"
    program.write_text("#!/bin/sh\necho booted; exec sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setattr(qemu, "PROGRAM", str(program))
    printed = []
    outcome = qemu.run_guest(tmp_path / "image", tmp_path / "initramfs", tmp_path, 100, printed.append, silent_s=2)
    assert outcome.fell_over and outcome.why == "it had printed nothing for 2 s"
    assert printed == ["booted\n"]


def test_a_warning_of_the_guests_kernel_is_a_failure():
    code, output, _ = guest("--command", "echo 'WARNING: CPU: 0 at a driver' >/dev/kmsg; exit 0")
    assert code == 1
    assert "guest's kernel:" in output and "WARNING: CPU: 0 at a driver" in output


def test_a_guest_that_dies_is_a_failure_with_its_last_words():
    code, output, _ = guest("--command", "echo c >/proc/sysrq-trigger; sleep 1000")
    assert code == 1
    assert "no result" in output and "Kernel panic" in output
