"""What the demo captures: an application launched from a cold cache, again and again, while a download goes on.

`blkreel capture` starts it as its command: python -m blkreel.cli.demo.workload --drive MOUNT --torrent FILE ...
It ends with 1, saying why, where the download or a launch failed. What happened goes to --result as JSON.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import click

from blkreel.cli.demo.torrent import last_words, start_download, stop
from blkreel.traces.errors import BlkreelError
from blkreel.traces.units import format_bytes

from . import application

LIBRARIES = "application"
DATASET = "dataset"
DOWNLOADS = "downloads"
_DOWNLOAD_START_S = 60.0
_LAUNCH_S = 120.0
_UNDER_WAY_BYTES = 8 << 20
_SECTOR_BYTES = 512  # sysfs counts in these whatever the drive's block size


@click.command(context_settings={"show_default": True})
@click.option("--drive", "mount", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--torrent", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--bytes-per-s", type=int, required=True, help="Limit of the download.")
@click.option("--launch", "launches", multiple=True, required=True, help="One of: dataframes, scan, chart.")
@click.option("--pause-s", type=float, default=3.0, help="Between launches.")
@click.option("--result", type=click.Path(path_type=Path), required=True)
def command(mount, torrent, bytes_per_s, launches, pause_s, result):
    """Launch applications from a drive that a download writes to."""
    done = []
    with _download(torrent, mount, bytes_per_s, result.with_suffix(".log")) as client:
        for name in launches:
            time.sleep(pause_s)
            done.append(launch(mount, name))
            print(f"launch {len(done)} of {len(launches)} ({name}): {done[-1]['seconds']:.1f} s, "
                  f"read {format_bytes(done[-1]['read_bytes'])}", file=sys.stderr, flush=True)
        time.sleep(pause_s)
        still_going = client.poll() is None
    if not still_going:
        print("warning: the download ended before the last launch: some reads met no writes", file=sys.stderr)
    result.write_text(json.dumps({"launches": done, "download_outlived_launches": still_going}))


@contextmanager
def _download(torrent, mount, bytes_per_s, log):
    directory = mount / DOWNLOADS
    directory.mkdir(exist_ok=True)
    written_bytes = drive_bytes(mount)["written"]
    client = start_download(torrent, directory, bytes_per_s, log)
    try:
        end = time.monotonic() + _DOWNLOAD_START_S
        while drive_bytes(mount)["written"] < written_bytes + _UNDER_WAY_BYTES:
            if client.poll() is not None or time.monotonic() > end:
                raise BlkreelError(f"the download does not get under way: {last_words(log)}")
            time.sleep(0.05)
        yield client
    finally:
        stop(client)


def launch(mount: Path, name: str) -> dict:
    """One launch from a cold cache; how long it took and what it read from the drive."""
    # Root only. A launch read from memory leaves nothing to capture.
    Path("/proc/sys/vm/drop_caches").write_text("3")
    before = drive_bytes(mount)
    started = time.monotonic()
    # -I and -S leave the standard library alone on the path, -B keeps a launch from writing to the drive it reads.
    arguments = ["-I", "-S", "-B", application.__file__, mount / LIBRARIES, name, mount / DATASET]
    outcome = subprocess.run([_interpreter(), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                             text=True, timeout=_LAUNCH_S)
    if outcome.returncode:
        said = outcome.stderr.strip().splitlines() or [f"exit code {outcome.returncode}"]
        raise BlkreelError(f"the launch {name} failed: {said[-1]}")
    return {"name": name, "seconds": time.monotonic() - started,
            "read_bytes": drive_bytes(mount)["read"] - before["read"]}


def drive_bytes(path: Path) -> dict[str, int]:
    """What the drive under a path has read and written so far."""
    number = path.stat().st_dev
    fields = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat").read_text().split()
    return {"read": int(fields[2]) * _SECTOR_BYTES, "written": int(fields[6]) * _SECTOR_BYTES}


def _interpreter():
    """By the name its threads carry in a trace."""
    python3 = Path(sys.executable).with_name("python3")
    return str(python3 if python3.exists() else sys.executable)


def main() -> None:
    # A capture that ends early asks its command to end: the client must not outlive it.
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
