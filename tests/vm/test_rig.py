"""The guest runner: a failure in a guest is a failure on the host, and every guest stops within its timeout."""

import os
import subprocess
import sys
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
    result = subprocess.run([sys.executable, RUN, "--kernel", "linux-image-amd64", *arguments], capture_output=True,
                            text=True, timeout=280)
    return result.returncode, result.stdout + result.stderr


def test_exit_code_output_and_warnings_come_through_and_the_host_is_read_only():
    code, output = guest("--command", f"echo from $(hostname); ls /dev/nvme0n1; touch {CHECKOUT}/by-guest;"
                                      " echo 'WARNING: CPU: 0 at a driver' >/dev/kmsg; exit 7")
    assert code == 7
    assert "from guest" in output and "/dev/nvme0n1" in output
    assert "Read-only file system" in output and not (CHECKOUT / "by-guest").exists()
    assert "guest kernel:" in output and "WARNING: CPU: 0 at a driver" in output


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """machine(script) makes a shell script the emulator, in place of a guest; the module of run.py."""
    monkeypatch.syspath_prepend(RUN.parent)
    runner, qemu = import_module("run"), import_module("qemu")

    def make(script):
        program = tmp_path / "qemu"
        # Its arguments name the directory of the job: -serial file:JOB/console.
        program.write_text(f"""#!/bin/sh
for word; do case $word in file:*/console) job=${{word#file:}}; job=${{job%/console}};; esac; done
{script}
""")
        program.chmod(0o755)
        monkeypatch.setattr(qemu, "PROGRAM", str(program))
        return runner

    yield make
    for name in ("run", "qemu", "errors", "initramfs", "kernel"):
        sys.modules.pop(name, None)


def run(runner, tmp_path, *words):
    """Exit code and output of one guest."""
    options, _ = runner.parser().parse_known_args(["--cache", str(tmp_path), "--command", "true", *words])
    printed = []
    code = runner.run(options, "kernel", tmp_path / "image", tmp_path / "initramfs", [], printed.append)
    return code, "".join(printed)


def test_a_guest_that_hangs_is_stopped(machine, tmp_path):
    code, output = run(machine("exec sleep 1000"), tmp_path, "--timeout", "2")
    assert code == 1
    assert "no end after 2 s" in output


def test_a_guest_without_output_is_stopped_as_crashed(machine, tmp_path):
    """A failure of the emulation can stop all output; without this limit the tests would wait for the full timeout."""
    machine("echo booted; exec sleep 1000")
    printed = []
    outcome = import_module("qemu").run_guest(tmp_path / "image", tmp_path / "initramfs", tmp_path, 100,
                                              printed.append, silent_s=2)
    assert outcome.crashed and outcome.why == "no output for 2 s"
    assert printed == ["booted\n"]


def test_a_guest_with_a_stalled_drive_is_stopped_as_crashed(machine, tmp_path):
    """As Linux 6.1 and 6.12 print it."""
    for line in ("nvme nvme0: I/O 768 QID 1 timeout, reset controller",
                 "nvme nvme0: I/O tag 768 (4300) opcode 0x2 (I/O Cmd) QID 1 timeout, reset controller"):
        machine(f"echo '[  736.232834] {line}' >$job/console; exec sleep 1000")
        outcome = import_module("qemu").run_guest(tmp_path / "image", tmp_path / "initramfs", tmp_path, 100, print)
        assert outcome.crashed and outcome.why == f"the emulated drive stalled: {line.removeprefix('nvme ')}"


@pytest.mark.parametrize(("dmesg", "code"), [("nvme0: 2/1/0 queues", 0), ("WARNING: CPU: 0 at a driver", 1)])
def test_a_kernel_warning_is_a_failure_of_tests_that_pass(machine, tmp_path, dmesg, code):
    runner = machine(f"echo '{dmesg}' >$job/dmesg; echo 0 >$job/exit_code")
    assert run(runner, tmp_path)[0] == code
