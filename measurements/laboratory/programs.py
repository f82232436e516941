"""The programs of the laboratory: those of dependent replay, and real ones on a part of their data."""

import shutil
import sys
from pathlib import Path

from measurements.contention import programs as real
from measurements.replay.dependent_programs import POSTGRES, Program
from measurements.replay.dependent_programs import PROGRAMS as OF_REPLAY

DIVISOR = 4  # of the data of the real programs: the guest is slow
SERVER = (POSTGRES / "initdb", "postgresql")
# 0 A.D. refuses root, and has no option to end when the map is loaded. Its mount of the data from the drive is its own.
STRATEGY_GAME = Path("/usr/games/pyrogenesis")
STRATEGY_GAME_DATA = Path("/usr/share/games/0ad/mods")
STRATEGY_GAME_LOAD = f"""
mount --bind "$1" {STRATEGY_GAME_DATA} || exit 1
home=$(mktemp -d) && chown nobody "$home" && mkfifo -m 666 "$home/log" || exit 1
{STRATEGY_GAME} --version >/dev/null 2>&1
setpriv --reuid nobody --clear-groups env HOME="$home" {STRATEGY_GAME} -mod=public -autostart=scenarios/arcadia \
    -autostart-nonvisual -nosound >"$home/log" 2>&1 &
grep -q -m 1 "GAME STARTED" "$home/log"
loaded=$?
kill -9 $!
wait
rm -rf "$home"
exit $loaded
"""


def real_program(name, key, *needs, needs_avx=False):
    return Program(name, lambda place: [sys.executable, real.__file__, key, place],
                   lambda place: real.fill(place, [key], DIVISOR), needs, needs_avx=needs_avx)


def fill_with_strategy_game(directory):
    shutil.copytree(STRATEGY_GAME_DATA, directory / "mods")


PROGRAMS = [
    *OF_REPLAY,
    real_program("model, read", "read"),
    real_program("model, mmap", "mmap"),
    real_program("model, direct", "direct"),
    real_program("many files", "small"),
    real_program("data scan", "scan", needs_avx=True),
    real_program("database prewarm", "restart", SERVER),
    real_program("database queries", "queries", SERVER),
    # Without a screen. 13 MB of its archive of 3.3 GB.
    Program("0 A.D.", lambda place: ["unshare", "--mount", "sh", "-c", STRATEGY_GAME_LOAD, "sh", place / "mods"],
            fill_with_strategy_game, needs=((STRATEGY_GAME, "0ad"),)),
]
