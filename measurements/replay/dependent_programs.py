"""Programs for the measurement of dependent replay: files on their drive, and their commands.

Most take about half a second on a fast drive, and mostly wait on a slow one; the game and PostgreSQL take longer.
Between I/Os they sleep or compute, but none uses both processors fully on the fast drive, because a replay does not
model waits for a processor.
"""

import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measurements.replay.drive_pair import new_filesystem, new_image

IMAGE_BYTES = 256 << 20
GAME = Path("/usr/share/games/supertuxkart/data")
# Debian has the server's programs outside of PATH, in a folder for each version.
POSTGRES = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/usr/lib/postgresql"))


@dataclass(frozen=True)
class Program:
    """command(place): its arguments; place is the drive, or with `fill` the mount point of its file system.

    needs: (program, package) pairs; the program is a name or a path. real_time: run it at real-time priority, unless
    its processes together may keep the drive's own kernel thread from all processors, for 40 ms each time.
    """

    name: str
    command: Callable[[Path], list]
    fill: Callable[[Path], None] | None = None
    needs: tuple = ()
    image_bytes: int = IMAGE_BYTES
    real_time: bool = True
    needs_avx: bool = False

    def make_image(self, path):
        if self.fill:
            new_filesystem(path, self.image_bytes, self.fill)
        else:
            new_image(path, self.image_bytes)


# Reads and processes blocks in turn.
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

# Four threads; each reads a block, processes it, and waits for its client.
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

# Each writes a row and computes.
TRANSACTIONS = "create table t (k integer primary key, v blob);\n" + \
    ("insert into t (v) values (randomblob(2000));\n"
     "with recursive c(x) as (select 1 union all select x + 1 from c where x < 100000) select sum(x) from c;\n") * 30


# Imports modules from the drive, without their compiled files.
IMPORTS = """
import importlib, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
for number in range(100):
    importlib.import_module(f"module{number}")
"""


def fill_with_modules(directory):
    for number in range(100):
        lines = [f"def function_{line}(x):\n    return [x + {line}, str(x)]\n" for line in range(200)]
        (directory / f"module{number}.py").write_text("".join(lines))


def fill_with_package(directory):
    contents = directory / "contents"
    (contents / "DEBIAN").mkdir(parents=True)
    (contents / "DEBIAN/control").write_text("Package: blkreel-bench\nVersion: 1\nArchitecture: all\n"
                                             "Maintainer: a <a@b>\nDescription: files\n")
    (contents / "files").mkdir()
    fill_with_files(contents / "files")
    subprocess.run(["dpkg-deb", "--build", contents, directory / "package.deb"], check=True, capture_output=True)
    shutil.rmtree(contents)
    for name in ("root/var/lib/dpkg/updates", "root/var/lib/dpkg/info"):
        (directory / name).mkdir(parents=True)
    (directory / "root/var/lib/dpkg/status").touch()


# Small files, so that one read-ahead reads a whole file; see docs/replay.md for larger ones.
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


def fill_with_clips(directory):
    for number in range(20):
        pattern = f"testsrc2=size=320x240:rate=25:duration={number + 10}"
        subprocess.run(["ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", pattern, "-c:v", "mpeg4", "-b:v", "1500k",
                        directory / f"clip-{number:02}.mp4"], check=True)


# Keys in random order, so that neighbors in the index are not neighbors in the table.
TABLE = """
select setseed(0.5);
create table t as select k, repeat(md5(k::text), 8) v from generate_series(1, 60000) k order by random();
create index on t (k);
vacuum analyze t;
checkpoint;
"""
INDEX_SCANS = "set enable_seqscan = off; set enable_bitmapscan = off;\n" + "".join(
    f"select sum(length(v)) from t where k between {low} and {low + 20};\n" for low in range(1, 60_000, 1500))


def fill_with_database(directory):
    base = directory / "base"
    base.mkdir()
    shutil.chown(base, "postgres", "postgres")
    as_postgres(f"{POSTGRES}/initdb -N -A trust -D {base}")
    as_postgres(start_server(base))
    as_postgres(f"{POSTGRES}/psql -q -h {base} postgres", TABLE)
    as_postgres(stop_server(base))


def as_postgres(command, text=None):
    subprocess.run(["runuser", "-u", "postgres", "--", "sh", "-c", command], input=text, text=True, check=True,
                   stdout=subprocess.DEVNULL)


def start_server(base):
    return f"""{POSTGRES}/pg_ctl start -w -s -D {base} -l /dev/null -o "-k {base} -c listen_addresses=''" """


def stop_server(base):
    return f"{POSTGRES}/pg_ctl stop -w -s -m fast -D {base}"


def database(place):
    base = place / "base"
    return ["runuser", "-u", "postgres", "--", *shell(
        f"{POSTGRES}/postgres --version; {POSTGRES}/pg_ctl --version; {POSTGRES}/psql --version",
        f"{start_server(base)} && {POSTGRES}/psql -q -h {base} postgres >/dev/null <<'END'\n{INDEX_SCANS}END\n"
        f"{stop_server(base)}")]


# No questions, no network.
GAME_SETTINGS = """<?xml version="1.0"?>
<stkconfig version="8">
    <enable_internet value="2" />
</stkconfig>
"""


def fill_with_game(directory):
    shutil.copytree(GAME, directory / "data")
    settings = directory / "home/.config/supertuxkart/config-0.10"
    settings.mkdir(parents=True)
    (settings / "config.xml").write_text(GAME_SETTINGS)


def game(place):
    """The start and the load of a race. Without a screen: drawing without a graphics processor uses all processors."""
    settings = f"env HOME={place}/home SUPERTUXKART_DATADIR={place}"
    return shell("/usr/games/supertuxkart --version",
                 f"{settings} /usr/games/supertuxkart --no-graphics --track=zengarden --numkarts=4 --profile-time=1 "
                 ">/dev/null 2>&1")


def shell(warm, command):
    """Runs both; the second finds the data of the first in the page cache."""
    return ["sh", "-c", f"{{ {warm}; }} >/dev/null 2>&1; {command}"]


def compressing(tool):
    """Reads small files through the page cache, one after the other."""
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
    # On the slow drive the same computation takes more processor time: see docs/replay.md.
    Program("xz", compressing("xz"), fill_with_files, needs=(("xz", "xz-utils"),)),
    Program("sqlite", lambda place: shell(
        "sqlite3 :memory: 'select 1'", f"sqlite3 {place}/base.db <<'END'\n{TRANSACTIONS}END"), lambda place: None,
        needs=(("sqlite3", "sqlite3"),)),
    Program("make, gcc", lambda place: shell(
        "echo 'int main;' | gcc -O1 -x c -c -o /dev/null -; make --version", f"make -s -C {place}"), fill_with_sources,
        needs=(("gcc", "gcc"), ("make", "make"))),
    Program("git", lambda place: shell("git --version", f"git -C {place} fsck"), fill_with_repository,
            needs=(("git", "git"),)),
    Program("git clone", lambda place: shell(
        "git --version", f"git clone -q --no-local --bare {place} {place}/clone.git"), fill_with_repository,
        needs=(("git", "git"),)),
    Program("tar", lambda place: shell(
        "tar --version", f"tar -C {place} -c . | cat >/dev/null"), fill_with_files, needs=(("tar", "tar"),)),
    # As fast as its reading on a slow drive, and as its compression on a fast one.
    Program("pipeline", lambda place: shell(
        "tar --version; gzip --version", f"tar -C {place} -c . | gzip -1 >/dev/null"), fill_with_files,
        needs=(("tar", "tar"), ("gzip", "gzip"))),
    Program("grep", lambda place: shell("grep --version", f"grep -rc return {place} >/dev/null"), fill_with_sources),
    Program("rg", lambda place: shell("rg --version", f"rg -c return {place} >/dev/null"), fill_with_sources,
            needs=(("rg", "ripgrep"),), real_time=False),
    Program("python imports", lambda place: [sys.executable, "-c", IMPORTS, place], fill_with_modules),
    Program("dpkg", lambda place: shell(
        "dpkg --version; dpkg-deb --version",
        f"dpkg --root={place}/root --force-script-chrootless -i {place}/package.deb >/dev/null"), fill_with_package,
        needs=(("dpkg", "dpkg"),), real_time=False),
    # A picture of each film for a catalog: its index, and a place in the middle.
    Program("ffmpeg", lambda place: shell(
        "ffmpeg -version", f"for film in {place}/*.mp4; do ffmpeg -nostdin -loglevel error -ss 8 -i $film -frames:v 1 "
        "-f null -; done"), fill_with_clips, needs=(("ffmpeg", "ffmpeg"),), real_time=False),
    Program("PostgreSQL", database, fill_with_database,
            needs=((POSTGRES / "initdb", "postgresql"), (POSTGRES / "psql", "postgresql"), ("runuser", "util-linux")),
            real_time=False),
    Program("game", game, fill_with_game, needs=(("/usr/games/supertuxkart", "supertuxkart"),), image_bytes=1 << 30),
    # Submits four reads at once, and waits for all of them.
    Program("fio, io_uring", lambda drive: [
        "fio", "--name=waves", f"--filename={drive}", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring",
        "--iodepth=4", "--iodepth_batch_submit=4", "--iodepth_batch_complete_min=4", "--number_ios=1000",
        "--size=100%", "--thinktime=2000", "--thinktime_blocks=4", "--output=/dev/null"], needs=(("fio", "fio"),)),
]
