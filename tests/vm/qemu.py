"""One guest: its command line, its output while it runs, and its end, which comes even where it hangs."""

import codecs
import os
import re
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from errors import RigError

PROGRAM = "qemu-system-x86_64"
MEMORY_MIB = 2048
DRIVES_BYTES = {"GUEST001": 128 << 20, "GUEST002": 128 << 20, "GUEST003": 128 << 20}

# What the kernel says when a driver or a BPF program has led it astray.
KERNEL_TROUBLE = re.compile(r"WARNING: |BUG: |Oops|general protection fault|blocked for more than|Kernel panic")


@dataclass(frozen=True)
class Outcome:
    """exit_code: of the guest's command; None where the guest ended without telling it, and `why` says how.

    trouble: what its kernel complained of, line by line.
    """

    exit_code: int | None
    why: str = ""
    trouble: list[str] = field(default_factory=list)

    @property
    def fell_over(self) -> bool:
        """Whether the guest died, or the program in it was killed by a signal."""
        return self.exit_code is None or self.exit_code > 128


def run_guest(image: Path, initramfs: Path, job: Path, timeout_s: float, write=None, processors=2,
              silent_s: float = float("inf")) -> Outcome:
    """Boot, run the shell script job/command in the guest, and call write(text) with what it prints.

    Without `write` the guest has this terminal, and as much time as it wants. job: a directory of its own for this
    guest, which leaves exit_code and dmesg there. silent_s: a guest that prints nothing for so long hangs.
    """
    arguments = [PROGRAM, *_machine(image, initramfs, processors), *_shares(job), *_drives(job)]
    streams = {} if write is None else {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    qemu = subprocess.Popen(arguments, stderr=(job / "qemu.log").open("w"), **streams)
    began = time.monotonic()
    heard_at = [began]

    def take(text):
        heard_at[0] = time.monotonic()
        write(text)

    reader = threading.Thread(target=_pass_on, args=(qemu.stdout, take), daemon=True)
    if write:
        reader.start()
    why = "it powered off before its command had ended"
    try:
        while qemu.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                qemu.wait(1)
            now = time.monotonic()
            if write and now - began > timeout_s:
                why = f"it had not ended after {timeout_s:.0f} s"
                break
            if write and now - heard_at[0] > silent_s:
                why = f"it had printed nothing for {silent_s:.0f} s"
                break
    finally:
        qemu.kill()
        qemu.wait()
        if write:
            reader.join(10)
    if qemu.returncode > 0:
        raise RigError(f"{PROGRAM} failed: {(job / 'qemu.log').read_text().strip()[-300:]}")
    return _outcome(job, why)


def _machine(image, initramfs, processors):
    # A thread for each processor: on one for all, QEMU leaves barriers out, and the NVMe drive misses doorbells.
    return ["-accel", "tcg,thread=multi", "-cpu", "max,-avx,-avx2", "-smp", str(processors), "-m", str(MEMORY_MIB),
            "-nodefaults", "-display", "none", "-no-reboot", "-nic", "none", "-kernel", image, "-initrd", initramfs,
            # Mitigations guard nothing in here and cost an emulated processor much. On a busy host the check of the
            # timer finds none, and ends the boot.
            "-append", "console=ttyS0 loglevel=5 panic=-1 mitigations=off audit=0 tsc=reliable no_timer_check"]


def _shares(job):
    # Without remap, files on two of the host's file systems may have one inode number, and 9p mixes them up.
    return ["-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
            "-virtfs", f"local,path={_escaped(job)},mount_tag=job,security_model=none",
            "-serial", f"file:{_escaped(job / 'console')}",
            "-chardev", "stdio,id=output,signal=off", "-device", "virtio-serial-pci",
            "-device", "virtconsole,chardev=output"]


def _drives(job):
    """NVMe drives with a volatile write cache. Flushes end in the host's memory: nobody needs the data afterwards."""
    arguments = []
    for serial, size_bytes in DRIVES_BYTES.items():
        path = job / f"{serial}.img"
        path.touch()
        os.truncate(path, size_bytes)
        arguments += ["-drive", f"file={_escaped(path)},if=none,id={serial},format=raw,cache=unsafe,discard=unmap",
                      "-device", f"nvme,drive={serial},serial={serial}"]
    return arguments


def _escaped(path):
    return str(path).replace(",", ",,")


def _pass_on(stream, write):
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while data := stream.read1():
        write(decoder.decode(data))


def _outcome(job, why):
    try:
        exit_code = int((job / "exit_code").read_text())
    except (OSError, ValueError):
        exit_code = None
    messages = job / ("console" if exit_code is None else "dmesg")
    lines = messages.read_text(errors="replace").splitlines() if messages.exists() else []
    trouble = [line for line in lines if KERNEL_TROUBLE.search(line)]
    if exit_code is None:
        return Outcome(None, why, trouble or lines[-10:])
    return Outcome(exit_code, "", trouble)
