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
from pathlib import Path

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
DATA_MIB, SMALL_FILES, SMALL_BYTES, SCAN_ROWS, DATABASE_SCALE = 768, 4000, 30_000, 16_000_000, 50
CLIENTS, TRANSACTIONS = 4, 1500
# Names of the data of the programs, and its size on the drive.
DATA = {"read": "file", "mmap": "file", "direct": "file", "small": "small", "scan": "table", "restart": "database",
        "queries": "database"}
SIZES = {"file": DATA_MIB << 20, "small": SMALL_FILES * SMALL_BYTES * 2, "table": 850 << 20, "database": 1200 << 20}


def size_bytes(programs):
    """Of the data of the programs on the drive."""
    return sum(SIZES[name] for name in {DATA[program] for program in programs})


def fill(directory, programs):
    """Write the data of the programs."""
    names = {DATA[program] for program in programs}
    if "file" in names:
        write_random(directory / "data", DATA_MIB)
    if "small" in names:
        for number in range(SMALL_FILES):
            path = directory / f"small/{number % 50}/{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(SMALL_BYTES))
    if "table" in names:
        (directory / "orders").mkdir()
        subprocess.run([sys.executable, SAMPLES / "parquet/generate.py", directory / "orders", str(SCAN_ROWS)],
                       check=True)
    if "database" in names:
        database = directory / "database"
        database.mkdir()
        shutil.chown(database, "postgres", "postgres")
        postgresql("create", database, DATABASE_SCALE)


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
    file, block = os.open(directory / "data", os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 1 << 20)
    start = 0
    while count := os.preadv(file, [block], start):
        zlib.crc32(block)
        start += count


def read_small(directory):
    for number in range(SMALL_FILES):
        with open(directory / f"small/{number % 50}/{number}", "rb") as file:
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


PROGRAMS = {"read": read, "mmap": read_mapped, "direct": read_direct, "small": read_small, "scan": scan,
            "restart": restart, "queries": queries}


def main():
    program, directory = sys.argv[1:]
    if program == "scan":
        import duckdb  # noqa: F401  before the clock starts
    time.sleep(0.2)
    began = time.monotonic()
    PROGRAMS[program](Path(directory))
    print(time.monotonic() - began, flush=True)


if __name__ == "__main__":
    main()
