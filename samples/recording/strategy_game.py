"""0 A.D., a strategy game with its data in one archive of 3.3 GB, from its start to a loaded map and some play."""

import os
from pathlib import Path

from .scratch import Root

ROOT = Root("strategy-game", ("0ad", "libgl1-mesa-dri", "libegl1", "libgl1"))
DATA = "/usr/share/games/0ad/mods"
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
