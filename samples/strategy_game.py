"""0 A.D., a strategy game with its data in one archive of 3.3 GB, from its start to a loaded map and some play."""

import os
import time
from contextlib import ExitStack
from pathlib import Path

from scratch import RECORDINGS, SATA, Root, emulated_drive
from screen import screen
from web import RATES, UNDER_WAY_S, download_beside, limited_dirty_data, server

LARGE_MAP, PLAY_S = "units_demo", 40
_DOWNLOAD_S = 90  # longer than the game
ROOT = Root("strategy-game", ("0ad", "libgl1-mesa-dri", "libegl1", "libgl1"))
DATA = "/usr/share/games/0ad/mods"
_DRIVE_BYTES = 3900 << 20
USER = "65534"  # the game refuses root
HOME = "/tmp/player"
# The game runs on after the line that ends the load, and has no option to end by itself. It has several processes.
_SCRIPT = """mkfifo {home}/log 2>/dev/null
setsid {launcher} pyrogenesis -autostart=scenarios/{map} -mod=public -conf=windowed:true {picture} >{home}/log 2>&1 &
grep -m 1 'GAME STARTED' <{home}/log || exit 1
sleep {seconds}
kill -9 -$!
wait
"""


def record(name: str, map_name: str, play_seconds: int, download: str | None = None) -> None:
    """Starts on the map, and plays it for so long, from a cold cache. download: a key of RATES: beside such a
    download to the same drive, which is other work and no part of the captured command."""
    download_bytes = _DOWNLOAD_S * RATES[download] if download else 0
    with (emulated_drive((_DRIVE_BYTES + download_bytes) // 4096 * 4096, SATA) as scratch,
          screen(scratch.workspace.environment, "1024x768") as display, server(download_bytes) as url):
        scratch.install_elsewhere(ROOT, DATA)
        environment = {**display, "ALSOFT_DRIVERS": "null"}
        scratch.run("install", "-d", "-o", USER, HOME)
        command = game_in(scratch.system, map_name, play_seconds)
        # It stores settings and compiled shaders the first time.
        scratch.settle()
        scratch.time(command, environment)
        for _ in range(RECORDINGS):
            (scratch.mount / "download.bin").unlink(missing_ok=True)
            scratch.settle()
            with ExitStack() as beside:
                if download:
                    beside.enter_context(limited_dirty_data(scratch))
                    beside.enter_context(download_beside(scratch, url, download))
                    time.sleep(UNDER_WAY_S)
                scratch.record_best(name, command, environment)
        scratch.settle()
        scratch.time(command, environment)


def game_in(system: Path, map_name: str, play_seconds: int, launcher: str = "",
            picture: str = "-xres=1024 -yres=768") -> list[str]:
    """The command that starts the game of a root directory, and ends when it was played for so long.

    launcher: command before that of the game. picture: its options of graphics.
    """
    script = _SCRIPT.format(home=HOME, map=map_name, seconds=play_seconds, launcher=launcher, picture=picture)
    # The game draws on all processors that it has, and the drive needs one.
    processor = max(os.sched_getaffinity(0))
    # A recorded command has the home of its user, root; the game must be able to write there.
    return ["taskset", "--cpu-list", str(processor), "chroot", f"--userspec={USER}:{USER}", str(system),
            "env", f"HOME={HOME}", "sh", "-c", script]
