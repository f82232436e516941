"""Programs that truth.py runs cold on a drive: programs.py PROGRAM DIRECTORY.

Prints the seconds from the first read of a program, or from its start, to its last use of data.
"""

import mmap
import os
import shutil
import subprocess
import sys
import time
import zlib
from itertools import count
from pathlib import Path

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
DATA_MIB, SMALL_FILES, SMALL_BYTES, SCAN_ROWS, DATABASE_SCALE = 768, 4000, 30_000, 16_000_000, 50
CLIENTS, TRANSACTIONS = 4, 1500
# Below the parent of a drive's directory: the system of the game, and its data while no drive has it.
GAME_SYSTEM, GAME_DATA, GAME_MAP = "system", "game", "arcadia"
# Its mounts are its own, and gone after it. Arguments: the drive's directory, its place in the system, the system, a
# command.
IN_GAME_SYSTEM = """mount --bind "$1" "$2" && mount -t proc proc "$3/proc" && mount --bind /dev "$3/dev" || exit 1
shift 3
exec "$@"
"""
# Names of the data of the programs, and its size on the drive.
DATA = {"read": "file", "mmap": "file", "direct": "file", "small": "small", "scan": "table", "restart": "database",
        "queries": "database", "game": "game"}
SIZES = {"file": DATA_MIB << 20, "small": SMALL_FILES * SMALL_BYTES * 2, "table": 850 << 20, "database": 1200 << 20,
         "game": 3500 << 20}


def size_bytes(programs):
    """Of the data of the programs on the drive."""
    return sum(SIZES[name] for name in {DATA[program] for program in programs})


def fill(directory, programs, divisor=1):
    """Write the data of the programs; divisor: that part of it, except of the game's."""
    names = {DATA[program] for program in programs}
    if "file" in names:
        write_random(directory / "data", DATA_MIB // divisor)
    if "small" in names:
        for number in range(SMALL_FILES // divisor):
            path = directory / f"small/{number % 50}/{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(SMALL_BYTES))
    if "table" in names:
        (directory / "orders").mkdir()
        subprocess.run([sys.executable, SAMPLES / "parquet/generate.py", directory / "orders",
                        str(SCAN_ROWS // divisor)],
                       check=True)
    if "game" in names:
        subprocess.run(["cp", "-a", directory.parent / GAME_DATA, directory / GAME_DATA], check=True)
    if "database" in names:
        database = directory / "database"
        database.mkdir()
        shutil.chown(database, "postgres", "postgres")
        postgresql("create", database, DATABASE_SCALE // divisor)


def install_game(directory):
    """Before fill() of a drive's directory below this one: the system of the game, and its data beside it."""
    game = strategy_game()
    system, data = directory / GAME_SYSTEM, directory / GAME_DATA
    system.mkdir()
    subprocess.run(["tar", "-xf", game.ROOT.tar(), "-C", system, "--numeric-owner", "--xattrs"], check=True)
    shutil.move(system / game.DATA.lstrip("/"), data)
    (system / game.DATA.lstrip("/")).mkdir()
    home = system / game.HOME.lstrip("/")
    home.mkdir()
    shutil.chown(home, int(game.USER))
    play(directory, data)  # it stores settings and compiled shaders the first time


def strategy_game():
    sys.path.insert(0, str(SAMPLES))
    from recording import strategy_game

    return strategy_game


def play(directory, data):
    """From the start of the game to a loaded map."""
    game = strategy_game()
    from recording.screen import screen

    system = directory / GAME_SYSTEM
    with screen(os.environ, "1024x768") as display:
        began = time.monotonic()
        subprocess.run(["unshare", "--mount", "sh", "-c", IN_GAME_SYSTEM, "game", data, system / game.DATA.lstrip("/"),
                        system, *game.game_in(system, GAME_MAP, 0)],
                       check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       env=display | {"ALSOFT_DRIVERS": "null", "LANG": "C.UTF-8",
                                      "PATH": "/usr/sbin:/sbin:/usr/bin:/bin:/usr/games"})
        return time.monotonic() - began


def write_random(path, mib):
    with open(path, "wb") as file:
        for _ in range(mib):
            file.write(os.urandom(1 << 20))


def postgresql(script, *arguments):
    """A script of samples/postgresql as user postgres, without access to the directory of this one."""
    text = (SAMPLES / f"postgresql/{script}.sh").read_text()
    subprocess.run(["chroot", "--userspec=postgres:postgres", "--groups=", "/", "sh", "-c", text, script,
                    *map(str, arguments)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   stdin=subprocess.DEVNULL)


def read(directory):
    with open(directory / "data", "rb", buffering=0) as file:
        while block := file.read(1 << 20):
            zlib.crc32(block)


def read_mapped(directory):
    with open(directory / "data", "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
        for start in range(0, len(data), 1 << 20):
            zlib.crc32(data[start:start + (1 << 20)])


def read_direct(directory):
    file, memory = os.open(directory / "data", os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 2 << 20, mmap.MAP_PRIVATE)
    memory.madvise(mmap.MADV_HUGEPAGE)  # the kernel would split a read into many small pages
    memory.write(bytes(1 << 20))
    block = memoryview(memory)[:1 << 20]
    start = 0
    while read_bytes := os.preadv(file, [block], start):
        zlib.crc32(block)
        start += read_bytes


def read_small(directory):
    for number in count():
        try:
            file = open(directory / f"small/{number % 50}/{number}", "rb")  # noqa: SIM115
        except FileNotFoundError:
            return
        with file:
            while block := file.read(4096):
                for _ in range(4):
                    zlib.crc32(block)


def scan(directory):
    sys.path.insert(0, str(SAMPLES / "parquet"))
    import query

    query.main(str(directory / "orders"))


def restart(directory):
    postgresql("restart", directory / "database")


def queries(directory):
    postgresql("queries", directory / "database", CLIENTS, TRANSACTIONS)


def game(directory):
    return play(directory.parent, directory / GAME_DATA)


PROGRAMS = {"read": read, "mmap": read_mapped, "direct": read_direct, "small": read_small, "scan": scan,
            "restart": restart, "queries": queries, "game": game}


def main():
    program, directory = sys.argv[1:]
    if program == "scan":
        import duckdb  # noqa: F401  before the clock starts
    time.sleep(0.2)
    began = time.monotonic()
    took_s = PROGRAMS[program](Path(directory))
    print(took_s or time.monotonic() - began, flush=True)


if __name__ == "__main__":
    main()
