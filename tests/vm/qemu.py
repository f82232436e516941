"""Runs one guest under QEMU: command line, output, exit code, and a timeout for guests that hang."""

import codecs
import ctypes
import mmap
import os
import random
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from errors import RigError

PROGRAM = "qemu-system-x86_64"
DRIVES_BYTES = {"GUEST001": 128 << 20, "GUEST002": 128 << 20, "GUEST003": 128 << 20}
# A namespace with two paths: one controller each, which share this serial number.
SHARED_SERIAL = "GUEST004"
SHARED_BYTES = 64 << 20
# A namespace with zones: sizes and capacity of each, and the most that are active.
ZONED_SERIAL = "GUEST005"
ZONED_BYTES, ZONE_BYTES, ZONE_CAPACITY_BYTES, ACTIVE_ZONES = 64 << 20, 4 << 20, 3 << 20, 6
VIRTIO_SERIAL, VIRTIO_BYTES = "GUEST006", 16 << 20
PMEM_BYTES = 32 << 20

# Kernel messages that indicate a fault, for example in a driver or a BPF program.
KERNEL_TROUBLE = re.compile(r"WARNING: |BUG: |Oops|general protection fault|blocked for more than|Kernel panic")
# The driver gives up an I/O that the drive neither completes nor aborts. On a busy host the emulation at times stops
# processing a queue, also after a reset, and each test on the drive would then fail after minutes.
STALLED_DRIVE = re.compile(r"nvme\d+: .* QID \d+ timeout, reset controller")


@dataclass(frozen=True)
class Machine:
    """instruction_ns: unless 0, the guest's clock is its instructions, 1, 2 or 4 ns each, and skips the time in which
    it is idle, so that it depends neither on the speed nor on the load of the host. Such a guest has one processor. It
    has no NVMe drives, because these answer in real time.

    images: files in the guest's memory, read-only block devices /dev/pmem* in order of their addresses. An ext4 file
    system with the label "system" lies over the root of the host: its files are read without the host, which answers in
    real time.

    has_avx: QEMU emulates it slowly, and Python with its packages does without.
    """

    processors: int = 2
    memory_mib: int = 2048
    instruction_ns: int = 0
    has_avx: bool = False
    images: Sequence[Path] = ()


@dataclass(frozen=True)
class Outcome:
    """exit_code: of the guest's command; None if the guest ended without an exit code, with the reason in `why`.

    trouble: lines of the kernel log that indicate a fault.
    """

    exit_code: int | None
    why: str = ""
    trouble: list[str] = field(default_factory=list)

    @property
    def crashed(self) -> bool:
        """Whether the guest ended early, or a signal killed its command."""
        return self.exit_code is None or self.exit_code > 128


def run_guest(image: Path, initramfs: Path, job: Path, timeout_s: float, write=None,
              machine: Machine = Machine(), silent_s: float = float("inf")) -> Outcome:
    """Boot, run the shell script job/command in the guest, and call write(text) with its output.

    Without `write` the guest uses this terminal and has no timeout. job: a directory for this guest alone, to which
    the guest writes exit_code and dmesg. silent_s: stop a guest without output for this many seconds.
    """
    arguments = [*_on_one_processor(), PROGRAM, *_machine(image, initramfs, machine), *_shares(job),
                 *_images(machine.images), *([] if machine.instruction_ns else _drives(job))]
    streams = {} if write is None else {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    qemu = subprocess.Popen(arguments, stderr=(job / "qemu.log").open("w"), **streams)
    began = time.monotonic()
    last_output_at = [began]

    def receive(text):
        last_output_at[0] = time.monotonic()
        write(text)

    reader = threading.Thread(target=_copy_output, args=(qemu.stdout, receive), daemon=True)
    if write:
        reader.start()
    why = "guest powered off before its command ended"
    try:
        while qemu.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                qemu.wait(1)
            now = time.monotonic()
            if write and now - began > timeout_s:
                why = f"no end after {timeout_s:.0f} s"
                break
            if write and now - last_output_at[0] > silent_s:
                why = f"no output for {silent_s:.0f} s"
                break
            if write and (stalled := STALLED_DRIVE.search(_text(job / "console"))):
                why = f"the emulated drive stalled: {stalled[0]}"
                break
    finally:
        qemu.kill()
        qemu.wait()
        if write:
            reader.join(10)
    if qemu.returncode > 0:
        raise RigError(f"{PROGRAM} failed: {(job / 'qemu.log').read_text().strip()[-300:]}")
    return _outcome(job, why)


def _on_one_processor():
    """Words before a command that keep all its threads on one processor of the host.

    With one thread for the processors of the guest, QEMU omits their barriers, so that on two processors of the host
    the thread of an NVMe drive may miss a doorbell, and the drive stalls.
    """
    allowed = sorted(os.sched_getaffinity(0))
    worker = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))  # guests side by side: each its own
    chosen = allowed[int(worker[1]) % len(allowed)] if worker else random.choice(allowed)
    return ["taskset", "--cpu-list", str(chosen)] if len(allowed) > 1 else []


def _machine(image, initramfs, machine):
    # One thread for all processors: with one for each, guests hang or crash when the kernel patches code (tracepoints)
    # that another processor executes.
    clock = ["-icount", f"shift={machine.instruction_ns.bit_length() - 1},sleep=off", "-rtc", "clock=vm",
             "-seed", "1"] if machine.instruction_ns else []
    # Without erms and fsrm the kernel copies and clears memory by words, which QEMU would do byte by byte. With a
    # counted clock they stay: each byte is an instruction there, and docs/measurements.md has figures of it.
    lacking = [*([] if machine.has_avx else ["-avx", "-avx2"]),
               *([] if machine.instruction_ns else ["-erms", "-fsrm"])]
    return ["-accel", "tcg,thread=single", "-cpu", ",".join(["max", *lacking]),
            "-smp", str(machine.processors), *clock,
            "-machine", "nvdimm=on", "-m", f"{machine.memory_mib},slots=32,maxmem=64G", "-nodefaults",
            "-display", "none", "-no-reboot", "-nic", "none", "-kernel", image, "-initrd", initramfs,
            # Mitigations are slow under emulation and not needed here. On a busy host the timer check fails and stops
            # the boot, and the kernel takes the counter for slower than it is: a clock was twenty times too fast.
            # A machine that is itself a guest may stand still for minutes, which is no lockup or hang of this kernel.
            "-append", "console=ttyS0 loglevel=5 panic=-1 mitigations=off audit=0 tsc=reliable no_timer_check"
            " nosoftlockup sysctl.kernel.hung_task_timeout_secs=480"
            + ("" if machine.instruction_ns else f" tsc_early_khz={_tsc_khz()}")]


def _tsc_khz(measured_s=0.1):
    """The frequency of this machine's time-stamp counter, which a guest with the host's clock reads."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("0f31 48c1e220 4809d0 c3"))  # rdtsc; shl rdx, 32; or rax, rdx; ret
    counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))

    def read():
        # Of several the one that was interrupted least.
        began_ns, count, ended_ns = min(((time.monotonic_ns(), counter(), time.monotonic_ns()) for _ in range(100)),
                                        key=lambda times: times[2] - times[0])
        return (began_ns + ended_ns) / 2, count

    (first_ns, first), _, (last_ns, last) = read(), time.sleep(measured_s), read()
    return round((last - first) * 1e6 / (last_ns - first_ns))


def _shares(job):
    # Without remap, 9p confuses files on different file systems of the host that have the same inode number.
    return ["-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
            "-virtfs", f"local,path={_escaped(job)},mount_tag=job,security_model=none",
            "-serial", f"file:{_escaped(job / 'console')}",
            "-chardev", "stdio,id=output,signal=off", "-device", "virtio-serial-pci",
            "-device", "virtconsole,chardev=output"]


def _images(paths):
    arguments = []
    for number, path in enumerate(paths):
        arguments += ["-object", f"memory-backend-file,id=image{number},mem-path={_escaped(path)},"
                                 f"size={path.stat().st_size},share=on,readonly=on",
                      "-device", f"nvdimm,memdev=image{number},unarmed=on"]
    return arguments


def _drives(job):
    """NVMe drives with a volatile write cache. Flushes do not reach the host's disk: the data is not needed later."""
    arguments = []
    for serial, size_bytes in DRIVES_BYTES.items():
        arguments += [*_image(job, serial, size_bytes), "-device", f"nvme,drive={serial},serial={serial}"]
    return [*arguments, "-object", f"memory-backend-ram,id=pmem,size={PMEM_BYTES}", "-device", "nvdimm,memdev=pmem",
            *_image(job, SHARED_SERIAL, SHARED_BYTES), "-device", "nvme-subsys,id=shared",
            "-device", f"nvme,id=path0,serial={SHARED_SERIAL},subsys=shared",
            "-device", f"nvme,id=path1,serial={SHARED_SERIAL},subsys=shared",
            "-device", f"nvme-ns,bus=path0,drive={SHARED_SERIAL},shared=on",
            *_image(job, ZONED_SERIAL, ZONED_BYTES), "-device", f"nvme,id=zoned,serial={ZONED_SERIAL}",
            "-device", f"nvme-ns,bus=zoned,drive={ZONED_SERIAL},zoned=true,zoned.zone_size={ZONE_BYTES},"
                       f"zoned.zone_capacity={ZONE_CAPACITY_BYTES},zoned.max_active={ACTIVE_ZONES},"
                       f"zoned.max_open={ACTIVE_ZONES}",
            *_image(job, VIRTIO_SERIAL, VIRTIO_BYTES), "-device",
            f"virtio-blk-pci,drive={VIRTIO_SERIAL},serial={VIRTIO_SERIAL}"]


def _image(job, serial, size_bytes):
    path = job / f"{serial}.img"
    path.touch()
    os.truncate(path, size_bytes)
    return ["-drive", f"file={_escaped(path)},if=none,id={serial},format=raw,cache=unsafe,discard=unmap"]


def _escaped(path):
    return str(path).replace(",", ",,")


def _copy_output(stream, write):
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while data := stream.read1():
        write(decoder.decode(data))


def _text(path):
    return path.read_text(errors="replace") if path.exists() else ""


def _outcome(job, why):
    try:
        exit_code = int((job / "exit_code").read_text())
    except (OSError, ValueError):
        exit_code = None
    lines = _text(job / ("console" if exit_code is None else "dmesg")).splitlines()
    trouble = [line for line in lines if KERNEL_TROUBLE.search(line)]
    if exit_code is None:
        return Outcome(None, why, trouble or lines[-10:])
    return Outcome(exit_code, "", trouble)
