"""The programs that dependent replay is shown with: what each finds on its drive, and how it is started.

Each takes half a second or so on a fast drive, and waits most of its time on a slow one. What it does between its
I/Os, sleep or compute, is its own: none keeps both processors busy on the fast drive, because a replay knows
nothing of processors that a program would have waited for.
"""

import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from drive_pair import new_filesystem, new_image

IMAGE_BYTES = 256 << 20


@dataclass(frozen=True)
class Program:
    """command(place): its words; place is the drive, or with `fill` the directory where its file system is mounted.

    needs: (program, package) pairs.
    """

    name: str
    command: Callable[[Path], list]
    fill: Callable[[Path], None] | None = None
    needs: tuple = ()

    def make_image(self, path):
        if self.fill:
            new_filesystem(path, IMAGE_BYTES, self.fill)
        else:
            new_image(path, IMAGE_BYTES)


# Reads a block, computes on it, and so on.
COMPUTING = """
import mmap, os, random, sys, zlib
file, block, choose = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 65536), random.Random(1)
data = os.urandom(65536)
zlib.compress(data, 1)
for _ in range(250):
    os.preadv(file, [block], choose.randrange(4000) * 65536)
    zlib.compress(data, 1)
    zlib.compress(data, 1)
"""

# Hands blocks to four threads, each of which reads one, looks at it, and waits for its client.
POOL = """
import hashlib, mmap, os, random, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
file, choose, own = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), random.Random(1), threading.local()
def serve(place):
    if not hasattr(own, "block"):
        own.block = mmap.mmap(-1, 16384)
    os.preadv(file, [own.block], place * 16384)
    time.sleep(0.002)
    return hashlib.sha256(own.block).digest()
with ThreadPoolExecutor(4) as pool:
    for _ in range(100):
        list(pool.map(serve, [choose.randrange(16000) for _ in range(8)]))
"""

# Each writes a row, and computes something.
TRANSACTIONS = "create table t (k integer primary key, v blob);\n" + \
    ("insert into t (v) values (randomblob(2000));\n"
     "with recursive c(x) as (select 1 union all select x + 1 from c where x < 100000) select sum(x) from c;\n") * 30


# Small, so that one read-ahead brings a whole file: docs/replay.md says what larger ones would show.
def fill_with_files(directory, sizes=(3000, 12_000, 30_000)):
    choose = random.Random(1)
    for number in range(150):
        folder = directory / f"{number % 20:02}"
        folder.mkdir(exist_ok=True)
        (folder / f"file-{number}").write_bytes(choose.randbytes(choose.choice(sizes)))


def fill_with_sources(directory):
    for number in range(12):
        names = [f"part{number}_{part}.h" for part in range(15)]
        for name in names:
            lines = [f"static inline int f_{name[:-2]}_{line}(int x) {{ return x * {line} + (x >> 3); }}"
                     for line in range(30)]
            (directory / name).write_text("\n".join(lines))
        calls = " + ".join(f"f_{name[:-2]}_{line}(x)" for name in names for line in range(0, 30, 3))
        (directory / f"unit{number}.c").write_text(
            "".join(f'#include "{name}"\n' for name in names) + f"int unit{number}(int x) {{ return {calls}; }}\n")
    units = " ".join(f"unit{number}.o" for number in range(12))
    (directory / "Makefile").write_text(f"all: {units}\n%.o: %.c\n\tgcc -O1 -c -o $@ $<\n")


def fill_with_repository(directory):
    fill_with_files(directory, (3000, 20_000, 100_000, 500_000))
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", "-C", directory, *words], check=True)


def shell(warm, command):
    """Runs both; what the first reads, the second finds in memory."""
    return ["sh", "-c", f"{{ {warm}; }} >/dev/null 2>&1; {command}"]


def compressing(tool):
    """Small files through the page cache, one after the other."""
    return lambda place: shell(f"{tool} -c /etc/hostname; find --version; xargs --version; sort --version",
                               f"find {place} -type f | sort | xargs -n 1000 {tool} -c >/dev/null")


PROGRAMS = [
    Program("fio, think time", lambda drive: [
        "fio", "--name=think", f"--filename={drive}", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=psync",
        "--number_ios=400", "--size=100%", "--thinktime=2000", "--output=/dev/null"],
        needs=(("fio", "fio"),)),
    Program("computing", lambda drive: [sys.executable, "-c", COMPUTING, drive]),
    Program("thread pool", lambda drive: [sys.executable, "-c", POOL, drive]),
    Program("bzip2", compressing("bzip2"), fill_with_files, needs=(("bzip2", "bzip2"),)),
    # On the slow drive the same computing takes it more processor time: docs/replay.md.
    Program("xz", compressing("xz"), fill_with_files, needs=(("xz", "xz-utils"),)),
    Program("sqlite", lambda place: shell(
        "sqlite3 :memory: 'select 1'", f"sqlite3 {place}/base.db <<'END'\n{TRANSACTIONS}END"), lambda place: None,
        needs=(("sqlite3", "sqlite3"),)),
    Program("make, gcc", lambda place: shell(
        "echo 'int main;' | gcc -O1 -x c -c -o /dev/null -; make --version", f"make -s -C {place}"), fill_with_sources,
        needs=(("gcc", "gcc"), ("make", "make"))),
    Program("git", lambda place: shell("git --version", f"git -C {place} fsck"), fill_with_repository,
            needs=(("git", "git"),)),
]
