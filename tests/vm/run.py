"""Runs the guest's tests: boots a Debian kernel in QEMU, hands on what pytest prints there, ends with its verdict.

Software emulation, so that it needs neither KVM nor root. The host's root is the guest's, read-only.
"""

import argparse
import platform
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path

from errors import CannotRun, RigError
from initramfs import build
from kernel import fetch_package, find_package
from qemu import run_guest

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = CHECKOUT / ".venv/bin/python"
PROGRAMS = {"apt-cache": "apt", "dpkg-deb": "dpkg", "depmod": "kmod", "modprobe": "kmod", "cpio": "cpio"}


def main() -> int:
    options, pytest_arguments = parser().parse_known_args()
    try:
        refuse_missing()
        package = fetch_package(find_package(options.kernel), options.cache)
        image, initramfs = build(package)
        return run(options, image, initramfs, pytest_arguments)
    except CannotRun as reason:
        print(f"skipped: {reason}")
        return 0
    except RigError as error:
        print(f"test-vm: {error}", file=sys.stderr)
        return 1


def parser():
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [options] [what pytest takes]")
    parser.add_argument("--kernel", default="linux-image-amd64", help="Debian package of the guest's kernel")
    parser.add_argument("--cache", type=Path, default=CHECKOUT / ".vm", help="where kernels are kept")
    parser.add_argument("--timeout", type=float, default=900, help="end the guest after so many seconds")
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


def run(options, image, initramfs, pytest_arguments) -> int:
    with tempfile.TemporaryDirectory(dir=options.cache, prefix="guest-") as directory:
        job = Path(directory)
        (job / "command").write_text(f"cd {shlex.quote(str(CHECKOUT))}\n{command(options, pytest_arguments)}\n")
        began = time.monotonic()
        outcome = run_guest(image, initramfs, job, options.timeout, interactive=options.shell)
    seconds = time.monotonic() - began
    for line in outcome.trouble:
        print(f"guest's kernel: {line[:200]}")
    if outcome.exit_code is None:
        print(f"test-vm: the guest gave no result: {outcome.why}")
        return 1
    if outcome.trouble:
        print("test-vm: failed, because the guest's kernel complained")
        return 1
    print(f"test-vm: the guest's command ended with {outcome.exit_code} after {seconds:.0f} s")
    return outcome.exit_code


def command(options, pytest_arguments) -> str:
    if options.shell:
        return "stty sane -F /dev/hvc0; exec bash -i"
    if options.command:
        return options.command
    tests = [] if any(Path(word.partition("::")[0]).exists() for word in pytest_arguments) else ["tests/vm/guest"]
    return "exec " + shlex.join([str(PYTHON), "-m", "pytest", "-p", "no:cacheprovider", "--basetemp=/run/tmp/pytest",
                                 f"--color={'yes' if sys.stdout.isatty() else 'no'}", "--tb=short", *tests, *pytest_arguments])


if __name__ == "__main__":
    sys.exit(main())
