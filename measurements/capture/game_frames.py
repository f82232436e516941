"""A real game under MangoHud on an emulated drive: which of its frames waited for I/O.

0 A.D. renders by Mesa's software renderer to a screen without a monitor, while `blkreel capture` records the drive of
its data and MangoHud logs each frame. The view moves over the map all the time. Leaves the trace, the log and the page
of `blkreel report --frames` in a directory. Needs root, /dev/fuse, Xvfb and xdotool, and downloads Debian packages.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

from measurements.contention.programs import (
    GAME_DATA,
    GAME_MAP,
    GAME_SYSTEM,
    IN_GAME_SYSTEM,
    fill,
    install_game,
    strategy_game,
)
from measurements.contention.truth import WARNED, remount
from measurements.lab import machine, need

BLKREEL = Path(sys.executable).with_name("blkreel")
DRIVE = "nil:4GB,read_latency=12ms,read_bandwidth=100MB/s,write_latency=1ms,channels=1"
LOG_S, PLAY_S = 60, 63
WIDTH, HEIGHT = 480, 360
# The processor draws the picture: the effects that take it longest are off.
EFFECTS = ("shadows", "watereffects", "waterrealdepth", "particles", "fog", "silhouettes")
PICTURE = " ".join([f"-xres={WIDTH} -yres={HEIGHT} -conf=textures.maxanisotropy:1",
                    *(f"-conf={name}:false" for name in EFFECTS)])
EDGES = ((WIDTH - 1, HEIGHT // 2), (WIDTH // 2, HEIGHT - 1), (0, HEIGHT // 2), (WIDTH // 2, 0))
EDGE_S = 8


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="directory, which is made")
    parser.add_argument("--drive", default=DRIVE, help=f"emulated drive ({DRIVE})")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.inside:
        record(options.inside, options.output)
        return
    need(("mkfs.ext4", "e2fsprogs"), ("Xvfb", "xvfb"), ("xdotool", "xdotool"))
    print(machine())
    options.output.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="blkreel-frames-") as name:
        directory = Path(name)
        directory.chmod(0o755)  # the game runs as another user
        install_game(directory)
        in_system(directory, directory / GAME_DATA, {"DEBIAN_FRONTEND": "noninteractive"}, "chroot",
                  directory / GAME_SYSTEM, "sh", "-c", "apt-get -qq update && apt-get -qq install mangohud")
        (directory / "mount").mkdir()
        done = subprocess.run(
            [BLKREEL, "emulate", options.drive, "--name", f"frames-{os.getpid()}", "--mount",
             directory / "mount", "--accept-inexact", "--", sys.executable, "-m", "measurements.capture.game_frames",
             options.output.resolve(), "--inside", directory])
        if done.returncode not in (0, WARNED):
            raise SystemExit(f"the run failed with exit code {done.returncode}")
    log, = (path for path in options.output.glob("*.csv") if not path.stem.endswith("_summary"))
    for words in (["--all"], ["-o", options.output / "frames.html", "--force"]):
        subprocess.run([BLKREEL, "report", options.output / "game.parquet", "--frames", log, *words])


def record(directory, output):
    """Capture the game cold on the mounted drive. The log keeps the time of its last change."""
    mount, game = Path(os.environ["BLKREEL_MOUNT"]), strategy_game()
    fill(mount, ["game"])
    os.sync()
    remount(mount, os.environ["BLKREEL_DEVICE"])
    logs = directory / GAME_SYSTEM / game.HOME.lstrip("/") / "logs"
    logs.mkdir()
    shutil.chown(logs, int(game.USER))
    command = game.game_in(directory / GAME_SYSTEM, GAME_MAP, PLAY_S, "mangohud --dlsym", PICTURE)
    environment = {"ALSOFT_DRIVERS": "null", "MANGOHUD_LOG_LEVEL": "off", "MANGOHUD_CONFIG": (
        f"autostart_log=1,log_duration={LOG_S},log_interval=0,output_folder={game.HOME}/logs")}
    with moving_view() as display:
        in_system(directory, mount / GAME_DATA, display | environment, BLKREEL, "capture",
                  os.environ["BLKREEL_DEVICE"], "--files", "--cold", "--user", "root", "-o", output / "game.parquet",
                  "--", *command)
    for path in logs.iterdir():
        shutil.copy2(path, output)


def in_system(directory, data, environment, *command):
    """Run a command while the data of the game is in its place below the root directory of the game."""
    system = directory / GAME_SYSTEM
    done = subprocess.run(["unshare", "--mount", "sh", "-c", IN_GAME_SYSTEM, "game", data,
                           system / strategy_game().DATA.lstrip("/"), system, *command], stdin=subprocess.DEVNULL,
                          env={"LANG": "C.UTF-8", "PATH": "/usr/sbin:/sbin:/usr/bin:/bin:/usr/games", **environment})
    if done.returncode not in (0, WARNED):
        raise SystemExit(f"{command[0]} failed with exit code {done.returncode}")


@contextmanager
def moving_view():
    """A screen whose pointer is at one edge after the other, where the game moves its view."""
    from recording.screen import screen

    ended = threading.Event()

    def move(environment):
        number = 0
        while not ended.wait(EDGE_S):
            x, y = EDGES[number % len(EDGES)]
            subprocess.run(["xdotool", "mousemove", str(x), str(y)], env=environment)
            number += 1

    with screen(os.environ, f"{WIDTH}x{HEIGHT}") as display:
        thread = threading.Thread(target=move, args=(os.environ | display,))
        thread.start()
        try:
            yield display
        finally:
            ended.set()
            thread.join()


if __name__ == "__main__":
    main()
