"""`blkreel emulate`: a block device for any program, with the timing of a described drive."""

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, cast

import click

from blkreel.capture.command import refuse_missing, user_of_command
from blkreel.cli.options import completion
from blkreel.cli.options.types import DEVICE_BYTES, DURATION_NS, KEY, CommandAfterDashes, as_json
from blkreel.cli.ui.progress import progress
from blkreel.common.command_line import AS_ROOT, command_line
from blkreel.common.console import notice, warn
from blkreel.common.emulated import IO_KINDS, MODEL, Counts, EmulatedAccount, check_text
from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.files.json_file import print_json
from blkreel.common.system import handled_signals
from blkreel.common.units import counted, format_bytes, format_ns, format_share
from blkreel.replay.drive.target import find_target
from blkreel.replay.drive.usage import Kernel, uses_of
from blkreel.replay.emulated.file_system import FILE_SYSTEMS, FileSystem, unmount
from blkreel.replay.emulated.host import own_group
from blkreel.replay.emulated.session import BACKENDS, EmulatedDrive, EmulateOptions, check_backends, emulated, with_size
from blkreel.replay.simulated import spec
from blkreel.replay.simulated.fitted import FittedReads, limit_of_fit
from blkreel.replay.simulated.spec import SimulatedDrive

_POLL_S = 0.25
_LIVE_EVERY_S = 1.0
_PATIENCE_S = 2.0
_BLOCK_BYTES = 4096


@click.command(cls=CommandAfterDashes, options_metavar="[OPTIONS]")
@click.argument("drive", metavar="DRIVE [-- COMMAND ...]", shell_complete=completion.drives)
@click.option("--size", type=DEVICE_BYTES,
              help="Size of the device. [default: that of the description, of a typical drive that of its image]")
@click.option("--memory", is_flag=True, help="Keep the data in memory until the end (default).")
@click.option("--image", type=click.Path(readable=False, path_type=Path), metavar="FILE",
              help="Keep the data in this file, in place of memory.")
@click.option("--name", help="Name of the link in /dev/blkreel. [default: name of the description]")
@click.option("--backend", type=click.Choice(BACKENDS),
              help="Driver of the block device. [default: ublk if the kernel has it]")
@click.option("--fs", type=click.Choice(FILE_SYSTEMS), help="Format the drive with this file system.")
@click.option("--mount", type=click.Path(readable=False, path_type=Path), metavar="DIR",
              help="Mount the drive there. A new drive is formatted with ext4, or with --fs.")
@click.option("--accept-inexact", is_flag=True, help="Emulate a drive whose timing this machine cannot reach.")
@click.option("--timeout", "timeout_ns", type=DURATION_NS, default="10s", show_default=True,
              help="Give programs I/O errors if the server does not answer for this time.")
@click.option("--force", is_flag=True,
              help="Unmount the drive at the end if it is mounted, and format an image that has data.")
@as_json
@click.pass_context
def command(ctx: click.Context, drive: str, size: int | None, memory: bool, image: Path | None, name: str | None,
            backend: str | None, fs: str | None, mount: Path | None, accept_inexact: bool, timeout_ns: int,
            force: bool, as_json: bool) -> None:
    """Emulate a drive as a block device, until Ctrl-C or until COMMAND exits.

    DRIVE is a simulated drive, as for `replay --on`: nil:NAME, nil:SIZE,KEY=VALUE or a file, also one of `blkreel
    model-drive`. I/Os complete at the times of its model, in real time. COMMAND gets BLKREEL_DEVICE and BLKREEL_MOUNT
    in its environment; the exit code is that of COMMAND.

    \b
    sudo blkreel emulate nil:sata-tlc --size 8GiB
    sudo blkreel emulate drive.toml --mount /mnt -- ./start-game --data /mnt
    """
    if memory and image:
        raise UsageError("--memory and --image exclude each other", "omit one of them")
    words: list[str] = ctx.meta[KEY]
    if words:
        refuse_missing(words)
    described = _described(drive, size, image)
    options = EmulateOptions(described, name or _default_name(drive, described),
                             image.absolute() if image else None, accept_inexact,
                             max(1, round(timeout_ns / 1e9)), backend)
    _check_name(options.name)
    if os.geteuid() != 0:
        raise BlkreelError("an emulated drive requires the rights to mount and to attach loop devices", AS_ROOT)
    check_backends()
    file_system = FileSystem.checked(fs, mount, image, force)
    signals = _Signals()
    with (handled_signals(dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), signals.receive)),
          emulated(options) as running):
        warn(f"this machine cannot reach {limit}" for limit in running.account["beyond"])
        if described.fitted and (limit := limit_of_fit(FittedReads(described.fitted).account())):
            warn([limit])
        if file_system:
            file_system.make(running.device)
        try:
            if words:
                code = _run_command(running, words, mount, signals)
            else:
                if not as_json:
                    _print_start(running, mount)
                code = _wait_for_signal(running, signals, force)
        finally:
            if file_system:
                file_system.unmount()
        _end(running, signals)
    if as_json:
        print_json(running.account)
    elif words:
        notice(_summary(running.account))
    else:
        print(_summary(running.account))
    ctx.exit(code)


def _described(text: str, size_bytes: int | None, image: Path | None) -> SimulatedDrive:
    if "," not in text and not text.endswith(".toml") and not spec.is_typical(text):
        raise UsageError(f"{text}: no drive model",
                         f"name a typical drive, as in nil:sata-tlc, or add keys: {text},read_latency=90us")
    drive = spec.parse(text)
    drive = replace(drive, clock="real")  # a virtual clock has no meaning for other programs
    if size_bytes is None and image and image.is_file() and drive.typical and "size" not in dict(drive.words):
        size_bytes = image.stat().st_size
    return with_size(drive, size_bytes // _BLOCK_BYTES * _BLOCK_BYTES) if size_bytes else drive


def _default_name(text: str, drive: SimulatedDrive) -> str:
    """Its key `name`, the name of its file or of the typical drive, else `emulated`."""
    stem = Path(text.removeprefix(spec.PREFIX)).stem if text.endswith(".toml") else ""
    return drive.name or stem or drive.typical or "emulated"


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise UsageError(f"invalid name: {name!r}", "use letters, digits, and . _ - as in: --name sata-tlc")


class _Signals:
    """Ctrl-C and SIGTERM end the drive in order, and never this process."""

    requested: int | None = None

    def receive(self, number: int, frame: FrameType | None) -> None:
        self.requested = number

    def take(self) -> int | None:
        """The signal since the last call."""
        number, self.requested = self.requested, None
        return number


def _print_start(running: EmulatedDrive, mount: Path | None) -> None:
    account = running.account
    where = f"in {account['image']}" if account["image"] else "in memory"
    print(f"{running.device}: {MODEL} {account['name']}, {format_bytes(account['size_bytes'])} {where}; {running.link}")
    print(_reached(account))
    if mount is None:
        print(f"next: sudo mkfs.ext4 {running.link} && sudo mount {running.link} /mnt")
        print(f"  or: {command_line('replay', 'TRACE', '--on', running.link, '-o', 'run/')}", flush=True)
    else:
        print(f"mounted at {mount}; to record a program on it: "
              f"{command_line('capture', '-o', 'program.parquet', running.link, '--', 'PROGRAM')}", flush=True)


def _reached(account: EmulatedAccount) -> str:
    calibration = account["calibration"]
    return (f"reached: {check_text(calibration['check'])}; at most {calibration['read_iops']:,.0f} read and "
            f"{calibration['write_iops']:,.0f} write IOPS, {format_bytes(calibration['read_bandwidth'])}/s and "
            f"{format_bytes(calibration['write_bandwidth'])}/s")


def _summary(account: EmulatedAccount) -> str:
    counts = account["counts"]
    ios = sum(cast(dict[str, int], counts)[f"{kind}_ios"] for kind in IO_KINDS)
    share = format_share(counts["late_ios"] / ios if ios else 0.0)
    parts = [f"{counted(ios, 'I/O')}, {counts['late_ios']:,} of them ({share}) completed late, "
             f"{format_ns(counts['late_ns'])} in all"]
    if check := account["check"]:
        parts.append(f"calibration at the end: {check_text(check)}")
    return f"{account['name']}: {'; '.join(parts)}"


def _wait_for_signal(running: EmulatedDrive, signals: _Signals, force: bool) -> int:
    """Until a signal that may end the drive. Returns the exit code."""
    with progress("emulating") as task:
        last, last_s = running.account["counts"], time.monotonic()
        while running.wait(_POLL_S):
            number = signals.take()
            if number is None:
                if time.monotonic() - last_s >= _LIVE_EVERY_S:
                    counts, now_s = running.account["counts"], time.monotonic()
                    task.update(0, _live_line(last, counts, now_s - last_s))
                    last, last_s = counts, now_s
                continue
            mounts = _mounts(running)
            if not mounts or number != signal.SIGINT:
                return 0
            if force:
                for directory in mounts:
                    unmount(directory)
                return 0
            notice(f"{running.device} is mounted at {mounts[0]}; umount {mounts[0]}, then press Ctrl-C again")
    raise running.error() or BlkreelError("the emulated drive ended without an error message")


def _live_line(before: Counts, now: Counts, seconds: float) -> str:
    def rate(kind: str) -> float:
        return (cast(dict[str, int], now)[kind] - cast(dict[str, int], before)[kind]) / seconds

    parts = [f"read {rate('read_ios'):,.0f}/s {format_bytes(rate('read_bytes'))}/s",
             f"write {rate('write_ios'):,.0f}/s {format_bytes(rate('write_bytes'))}/s", f"{now['in_flight']} in flight",
             f"{now['temperature_c']:.0f} C{' throttled' if now['throttled'] else ''}", f"{now['late_ios']:,} late"]
    if now["cache_fill_bytes"]:
        parts.insert(3, f"cache {format_bytes(now['cache_fill_bytes'])}")
    return ", ".join(parts)


def _mounts(running: EmulatedDrive) -> list[str]:
    uses = uses_of(find_target(running.device), Kernel())
    return [use.how.removeprefix("mounted at ") for use in uses if use.how.startswith("mounted at ")]


def _run_command(running: EmulatedDrive, words: list[str], mount: Path | None, signals: _Signals) -> int:
    """Returns the exit code of the command, as a shell does."""
    user = user_of_command(None) if mount else None
    environment = {**os.environ, "BLKREEL_DEVICE": running.device}
    if mount:
        environment["BLKREEL_MOUNT"] = str(mount)
    if user:
        environment |= {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    options: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid,
                               "extra_groups": os.getgrouplist(user.pw_name, user.pw_gid)} if user else {}
    with own_group(running.account["name"]) as processes:
        return _exit_code(_started(words, processes, env=environment, **options), signals)


def _started(words: list[str], processes: Path | None, **options: Any) -> "subprocess.Popen[bytes]":
    """The process of a command, which is in the control group before it runs. processes: cgroup.procs of the group."""
    reader, writer = os.pipe()
    try:
        if "user" in options:
            os.fchown(reader, options["user"], -1)  # /dev/fd opens the pipe again, with the rights of that user
        process = subprocess.Popen(["/bin/sh", "-c", 'read -r _ <"/dev/fd/$0"; exec "$@"', str(reader), *words],
                                   pass_fds=[reader], **options)
        if processes:
            with suppress(OSError):  # the account then has what flushes held back
                processes.write_text(str(process.pid))
    finally:
        os.close(reader)
        os.close(writer)
    return process


def _exit_code(process: "subprocess.Popen[bytes]", signals: _Signals) -> int:
    """The terminal sends Ctrl-C to the command too; another signal is passed on."""
    while True:
        try:
            code = process.wait(_POLL_S)
            return code if code >= 0 else 128 - code
        except subprocess.TimeoutExpired:
            number = signals.take()
            if number is not None and number != signal.SIGINT:
                process.send_signal(number)


def _end(running: EmulatedDrive, signals: _Signals) -> None:
    """Detach the device. While programs have it open it goes on; a signal then ends it by force."""
    running.check_again()
    running.begin_end()
    noticed = False
    begun_s = time.monotonic()
    while running.wait(_POLL_S):
        if signals.take() is not None and noticed:
            return
        if not noticed and time.monotonic() - begun_s > _PATIENCE_S:
            noticed = True
            notice(f"{running.device} is still open in a program, and ends with it; to give it I/O errors: Ctrl-C")
    if error := running.error():
        raise error
