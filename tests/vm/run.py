"""Boot Debian kernels in QEMU and run the guest tests there. The exit code is that of pytest in the guest.

QEMU emulates in software, so neither KVM nor root is needed. The guest mounts the root of the host read-only.
"""

import argparse
import os
import platform
import queue
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from errors import CannotRun, RigError
from initramfs import build
from kernel import fetch_package, find_package
from qemu import PROGRAM, Machine, run_guest

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = CHECKOUT / ".venv/bin/python"
# This kernel has no block_io_start, which is new in 6.5. linux-image-6.12-amd64 of the backports has it, but about half
# of its guests crash under QEMU's emulation.
DEFAULT_KERNELS = ["linux-image-amd64"]
ATTEMPTS = 4
PROGRAMS = {PROGRAM: "qemu-system-x86", "apt-cache": "apt", "dpkg-deb": "dpkg", "depmod": "kmod", "modprobe": "kmod",
            "cpio": "cpio"}


def main() -> int:
    options, pytest_arguments = parser().parse_known_args()
    kernels = options.kernel or DEFAULT_KERNELS
    if options.shell and len(kernels) > 1:
        kernels = kernels[:1]
    try:
        check_requirements()
        boots = [(name, *build(fetch_package(find_package(name), options.cache))) for name in kernels]
    except CannotRun as reason:
        print(f"skipped: {reason}")
        return 0
    except RigError as error:
        print(f"test-vm: {error}", file=sys.stderr)
        return 1
    if not (options.shell or options.command):
        compile_tests(pytest_arguments)
    # Each guest uses one processor, so two guests in parallel take little longer than one.
    reports = [Report() for _ in boots]
    with ThreadPoolExecutor(len(boots)) as pool:
        codes = [pool.submit(run, options, *boot, pytest_arguments, report.write)
                 for boot, report in zip(boots, reports, strict=True)]
        for report, code in zip(reports, codes, strict=True):
            report.show_until(code)
    return max(code.result() for code in codes)


def parser():
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [options] [pytest arguments]")
    parser.add_argument("--kernel", action="append",
                        help="Debian package of the guest kernel; may be repeated "
                             f"(default: {' '.join(DEFAULT_KERNELS)})")
    parser.add_argument("--cache", type=Path, default=CHECKOUT / ".vm",
                        help="directory for kernels and logs (default: .vm in the checkout)")
    parser.add_argument("--processors", type=int, default=2, help="number of processors of the guest (default: 2)")
    parser.add_argument("--timeout", type=float, default=3600,
                        help="stop the guest after this many seconds (default: 3600)")
    # Longer than the timeout of a test, which prints when it expires.
    parser.add_argument("--silence", type=float, default=700,
                        help="stop a guest without output for this many seconds (default: 700)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--command", help="run this shell command in the guest instead of tests")
    mode.add_argument("--shell", action="store_true",
                      help="start a shell in the guest; the guest stops when the shell exits")
    return parser


def check_requirements():
    if platform.machine() != "x86_64":
        raise CannotRun("the guest kernel and programs are for x86-64, this machine is not; use an x86-64 machine")
    for program, package in PROGRAMS.items():
        if not shutil.which(program) and not shutil.which(program, path="/usr/sbin:/sbin"):
            raise CannotRun(f"{program} not found; apt-get install {package}")


class Report:
    """Output of one guest: buffered until the guests before it have ended, then printed as it arrives."""

    def __init__(self):
        self._parts = queue.SimpleQueue()

    def write(self, text):
        self._parts.put(text)

    def show_until(self, end):
        while not (end.done() and self._parts.empty()):
            try:
                print(self._parts.get(timeout=0.2), end="", flush=True)
            except queue.Empty:
                pass


def run(options, kernel, image, initramfs, pytest_arguments, write) -> int:
    """Run one guest. Returns the exit code of its command, or a nonzero code if the guest failed.

    QEMU's emulation fails or hangs when one thread patches code that another executes, as the kernel does when
    tracepoints are attached, so one thread emulates all processors (qemu.py). A crashed guest, and one whose NVMe drive
    stalled, is booted again all the same; a crash caused by blkreel repeats each time. (A guest with one processor
    stalls its NVMe drive.)
    """
    attempts = 1 if options.shell or options.command else ATTEMPTS
    for left in reversed(range(attempts)):
        write(f"guest: {kernel}, {image.parent.name}\n")
        began = time.monotonic()
        try:
            outcome = boot(options, kernel, image, initramfs, pytest_arguments, write)
        except (CannotRun, RigError) as error:
            write(f"guest: {error}\n")
            return 1
        for line in outcome.trouble:
            write(f"guest kernel: {line[:200]}\n")
        if not (left and outcome.crashed):
            break
        write(f"guest: crashed: {outcome.why or f'exit code {outcome.exit_code}'}; booting it again\n")
    if outcome.exit_code is None:
        write(f"guest: no result: {outcome.why}; see {log_directory(options, kernel)}/console\n")
        return 1
    verdict = "; failed: kernel warnings" if outcome.trouble else ""
    write(f"guest: exit code {outcome.exit_code} after {time.monotonic() - began:.0f} s{verdict}\n")
    return outcome.exit_code or bool(outcome.trouble)


def boot(options, kernel, image, initramfs, pytest_arguments, write):
    with tempfile.TemporaryDirectory(dir=options.cache, prefix="guest-") as directory:
        job = Path(directory)
        (job / "command").write_text(f"cd {shlex.quote(str(CHECKOUT))}\n{command(options, pytest_arguments)}\n")
        try:
            return run_guest(image, initramfs, job, options.timeout, None if options.shell else write,
                             Machine(options.processors), float("inf") if options.command else options.silence)
        finally:
            log_directory(options, kernel).mkdir(exist_ok=True)
            for name in ("console", "dmesg"):
                if (job / name).exists():
                    shutil.copy(job / name, log_directory(options, kernel) / name)


def compile_tests(pytest_arguments):
    """Let pytest write the bytecode of the tests: the guest would compile for a minute, and its root is read-only."""
    environment = {**os.environ, "BLKREEL_GUEST": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # An error in a test shows when the guest runs it.
    subprocess.run([PYTHON, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "--quiet",
                    *tests_of(pytest_arguments), *pytest_arguments], cwd=CHECKOUT, env=environment,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def log_directory(options, kernel) -> Path:
    """Directory for the logs of the last guest with this kernel."""
    return options.cache / f"last-{kernel}"


def command(options, pytest_arguments) -> str:
    if options.shell:
        return "stty sane -F /dev/hvc0; exec bash -i"
    if options.command:
        return options.command
    color = "yes" if sys.stdout.isatty() else "no"
    return "exec " + shlex.join([str(PYTHON), "-m", "pytest", "-p", "no:cacheprovider", "--basetemp=/run/tmp/pytest",
                                 f"--color={color}", "--tb=short", *tests_of(pytest_arguments), *pytest_arguments])


def tests_of(pytest_arguments) -> list[str]:
    """The tests to add to the arguments: all, unless they name some."""
    return [] if any(Path(word.partition("::")[0]).exists() for word in pytest_arguments) else ["tests/vm/guest"]


if __name__ == "__main__":
    sys.exit(main())
