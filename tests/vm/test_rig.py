"""The guest runner: a failure in a guest is a failure on the host."""

import os
import re
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
                            text=True, timeout=560)
    return result.returncode, result.stdout + result.stderr


def test_exit_code_output_and_warnings_come_through_and_the_host_is_read_only():
    code, output = guest("--command", f"echo from $(hostname); ls /dev/nvme0n1; touch {CHECKOUT}/by-guest;"
                                      " cat /proc/cmdline; dmesg | grep 'tsc: Detected';"
                                      " echo 'WARNING: CPU: 0 at a driver' >/dev/kmsg; exit 7")
    assert code == 7
    told_khz = int(re.search(r"tsc_early_khz=(\d+)", output)[1])
    assert f"Detected {told_khz / 1000:.3f} MHz" in output, "its clock would run at another speed"
    assert "from guest" in output and "/dev/nvme0n1" in output
    assert "Read-only file system" in output and not (CHECKOUT / "by-guest").exists()
    assert "guest kernel:" in output and "WARNING: CPU: 0 at a driver" in output


@pytest.mark.parametrize(("dmesg", "code"), [("nvme0: 2/1/0 queues", 0), ("WARNING: CPU: 0 at a driver", 1)])
def test_a_kernel_warning_is_a_failure_of_tests_that_pass(monkeypatch, tmp_path, dmesg, code):
    """With a shell script as the emulator, in place of a guest."""
    monkeypatch.syspath_prepend(RUN.parent)
    runner, program = import_module("run"), tmp_path / "qemu"
    # Its arguments name the directory of the job: -serial file:JOB/console.
    program.write_text(f"""#!/bin/sh
for word; do case $word in file:*/console) job=${{word#file:}}; job=${{job%/console}};; esac; done
echo '{dmesg}' >$job/dmesg; echo 0 >$job/exit_code
""")
    program.chmod(0o755)
    monkeypatch.setattr(import_module("qemu"), "PROGRAM", str(program))
    options, _ = runner.parser().parse_known_args(["--cache", str(tmp_path), "--command", "true"])
    assert runner.run(options, "kernel", tmp_path / "image", tmp_path / "initramfs", [], print) == code
