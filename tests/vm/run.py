"""Runs the guest's tests: boots Debian kernels in QEMU, hands on what pytest prints there, ends with its verdict.

Software emulation, so that it needs neither KVM nor root. The host's root is the guest's, read-only.
"""

import argparse
import platform
import queue
import shlex
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from errors import CannotRun, RigError
from initramfs import build
from kernel import fetch_package, find_package
from qemu import PROGRAM, run_guest

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = CHECKOUT / ".venv/bin/python"
# Without block_io_start, which came with 6.5. One with it is linux-image-6.12-amd64 of the backports; QEMU's emulation
# lets about half of its guests fall over, where this one hardly ever does.
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
        refuse_missing()
        boots = [(name, *build(fetch_package(find_package(name), options.cache))) for name in kernels]
    except CannotRun as reason:
        print(f"skipped: {reason}")
        return 0
    except RigError as error:
        print(f"test-vm: {error}", file=sys.stderr)
        return 1
    # Guests keep one processor busy each, so two take hardly longer than one.
    reports = [Report() for _ in boots]
    with ThreadPoolExecutor(len(boots)) as pool:
        codes = [pool.submit(run, options, *boot, pytest_arguments, report.write)
                 for boot, report in zip(boots, reports, strict=True)]
        for report, code in zip(reports, codes, strict=True):
            report.show_until(code)
    return max(code.result() for code in codes)


def parser():
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [options] [what pytest takes]")
    parser.add_argument("--kernel", action="append",
                        help=f"Debian package of the guest's kernel; may be repeated (default: {DEFAULT_KERNELS})")
    parser.add_argument("--cache", type=Path, default=CHECKOUT / ".vm", help="where kernels are kept")
    parser.add_argument("--processors", type=int, default=2, help="of the guest")
    parser.add_argument("--timeout", type=float, default=1200, help="end the guest after so many seconds")
    # Longer than the limit of a test, which prints when it is over.
    parser.add_argument("--silence", type=float, default=400, help="end a guest that is silent for so many seconds")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--command", help="run this shell command in the guest and no tests")
    what.add_argument("--shell", action="store_true", help="a shell in the guest; it ends with the shell")
    return parser


def refuse_missing():
    if platform.machine() != "x86_64":
        raise CannotRun("the guest runs this machine's own programs, and its kernel is one for x86-64; use such a one")
    for program, package in PROGRAMS.items():
        if not shutil.which(program) and not shutil.which(program, path="/usr/sbin:/sbin"):
            raise CannotRun(f"no {program}; apt-get install {package}")


class Report:
    """What one guest prints. It is kept until those before it have ended, and passed on as it comes from then on."""

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
    """One guest from boot to end; the exit code of what ran in it, and 1 at least where the guest itself failed.

    QEMU's emulation fails now and then where one processor patches the code that another runs, as a kernel does whose
    tracepoints are attached: a guest that falls over is booted again. (With one processor none does, but its NVMe drive
    stalls.) What is wrong with us falls over each time.
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
            write(f"guest's kernel: {line[:200]}\n")
        if not (left and outcome.fell_over):
            break
        write(f"guest: fell over ({outcome.why or outcome.exit_code}); once more\n")
    if outcome.exit_code is None:
        write(f"guest: no result, because {outcome.why}; its last words: {kept(options, kernel)}/console\n")
        return 1
    verdict = ", and its kernel complained, which fails it" if outcome.trouble else ""
    write(f"guest: ended with {outcome.exit_code} after {time.monotonic() - began:.0f} s{verdict}\n")
    return outcome.exit_code or bool(outcome.trouble)


def boot(options, kernel, image, initramfs, pytest_arguments, write):
    with tempfile.TemporaryDirectory(dir=options.cache, prefix="guest-") as directory:
        job = Path(directory)
        (job / "command").write_text(f"cd {shlex.quote(str(CHECKOUT))}\n{command(options, pytest_arguments)}\n")
        try:
            return run_guest(image, initramfs, job, options.timeout, None if options.shell else write,
                             options.processors, float("inf") if options.command else options.silence)
        finally:
            kept(options, kernel).mkdir(exist_ok=True)
            for name in ("console", "dmesg"):
                if (job / name).exists():
                    shutil.copy(job / name, kept(options, kernel) / name)


def kept(options, kernel) -> Path:
    """Where the log of the last guest with this kernel stays."""
    return options.cache / f"last-{kernel}"


def command(options, pytest_arguments) -> str:
    if options.shell:
        return "stty sane -F /dev/hvc0; exec bash -i"
    if options.command:
        return options.command
    tests = [] if any(Path(word.partition("::")[0]).exists() for word in pytest_arguments) else ["tests/vm/guest"]
    color = "yes" if sys.stdout.isatty() else "no"
    return "exec " + shlex.join([str(PYTHON), "-m", "pytest", "-p", "no:cacheprovider", "--basetemp=/run/tmp/pytest",
                                 f"--color={color}", "--tb=short", *tests, *pytest_arguments])


if __name__ == "__main__":
    sys.exit(main())
