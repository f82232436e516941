"""The captured command of the demo: application launches from a cold cache during a download.

python -m blkreel.cli.demo.workload --drive MOUNT --torrent FILE ... writes its result as JSON to --result. Exit code 1
if the download or a launch fails.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from blkreel.common.errors import BlkreelError
from blkreel.common.units import format_bytes

from . import application
from .torrent import last_words, start_download, stop

LIBRARIES = "application"
DATASET = "dataset"
DOWNLOADS = "downloads"
_DOWNLOAD_START_S = 60.0
_LAUNCH_S = 120.0
_STARTED_BYTES = 8 << 20
_SECTOR_BYTES = 512  # of sysfs, for every block size


@click.command(context_settings={"show_default": True})
@click.option("--drive", "mount", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--torrent", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--bytes-per-s", type=int, required=True, help="Rate limit of the download.")
@click.option("--launch", "launches", multiple=True, required=True, help="Application: dataframes, scan or chart.")
@click.option("--pause-s", type=float, default=3.0, help="Time between launches.")
@click.option("--result", type=click.Path(path_type=Path), required=True)
def command(mount: Path, torrent: Path, bytes_per_s: int, launches: tuple[str, ...], pause_s: float,
            result: Path) -> None:
    """Launch applications from a drive during a download to it."""
    done: list[dict[str, Any]] = []
    with _download(torrent, mount, bytes_per_s, result.with_suffix(".log")) as client:
        for name in launches:
            time.sleep(pause_s)
            done.append(launch(mount, name))
            print(f"launch {len(done)} of {len(launches)} ({name}): {done[-1]['seconds']:.1f} s, "
                  f"read {format_bytes(done[-1]['read_bytes'])}", file=sys.stderr, flush=True)
        time.sleep(pause_s)
        outlived = client.poll() is None
    if not outlived:
        print("warning: the download ended before the last launch: some reads met no writes", file=sys.stderr)
    result.write_text(json.dumps({"launches": done, "download_outlived_launches": outlived}))


@contextmanager
def _download(torrent: Path, mount: Path, bytes_per_s: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    directory = mount / DOWNLOADS
    directory.mkdir(exist_ok=True)
    written_bytes = drive_bytes(mount)["written"]
    client = start_download(torrent, directory, bytes_per_s, log)
    try:
        end = time.monotonic() + _DOWNLOAD_START_S
        while drive_bytes(mount)["written"] < written_bytes + _STARTED_BYTES:
            if client.poll() is not None or time.monotonic() > end:
                raise BlkreelError(f"the download does not start: {last_words(log)}")
            time.sleep(0.05)
        yield client
    finally:
        stop(client)


def launch(mount: Path, name: str) -> dict[str, Any]:
    """Launch an application from a cold cache; returns its duration and the bytes read from the drive."""
    # Needs root. A launch from the page cache would issue no I/O.
    Path("/proc/sys/vm/drop_caches").write_text("3")
    before = drive_bytes(mount)
    started = time.monotonic()
    # -I, -S: only the standard library on the path. -B: no writes to the drive.
    arguments = ["-I", "-S", "-B", application.__file__, mount / LIBRARIES, name, mount / DATASET]
    outcome = subprocess.run([_interpreter(), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                             text=True, timeout=_LAUNCH_S)
    if outcome.returncode:
        errors = outcome.stderr.strip().splitlines() or [f"exit code {outcome.returncode}"]
        raise BlkreelError(f"the launch {name} failed: {errors[-1]}")
    return {"name": name, "seconds": time.monotonic() - started,
            "read_bytes": drive_bytes(mount)["read"] - before["read"]}


def drive_bytes(path: Path) -> dict[str, int]:
    """Bytes that the drive of a path has read and written since boot."""
    number = path.stat().st_dev
    fields = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat").read_text().split()
    return {"read": int(fields[2]) * _SECTOR_BYTES, "written": int(fields[6]) * _SECTOR_BYTES}


def _interpreter() -> str:
    """The interpreter as python3, the thread name in the trace."""
    python3 = Path(sys.executable).with_name("python3")
    return str(python3 if python3.exists() else sys.executable)


def main() -> None:
    # A capture that ends early sends SIGTERM: the client must stop too.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        command.main(standalone_mode=False)
    except (BlkreelError, click.ClickException, OSError, subprocess.TimeoutExpired) as error:
        print(f"workload: {error}", file=sys.stderr)
        sys.exit(1)
    except click.Abort:
        sys.exit(130)


if __name__ == "__main__":
    main()
