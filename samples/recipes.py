"""How each sample is recorded: RECIPES, by name; the functions make what a program needs on a drive, and record it.

blkreel.traces.samples.SAMPLES has what each one shows.
"""

import io
import math
import random
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from recording import strategy_game
from recording.scratch import EMMC, HOME, NVME, SATA, WORK, Command, Root, Scratch, emulated_drive
from recording.screen import screen
from recording.swarm import download_command, make_payload, swarm
from recording.web import RATES, download_beside, limited_dirty_data, server, web_download

from blkreel.common.errors import BlkreelError

_SPARE_BYTES = 320 << 20  # of a file system
_MODEL_BYTES = 4400 << 20  # with the file system
_UNDER_WAY_S = 4  # of a download, before a recording beside it


def model_load(name: str, mode: str) -> None:
    """llama.cpp. mode: read, mmap or direct."""
    with emulated_drive(_MODEL_BYTES, EMMC if mode == "read" else SATA) as scratch:
        scratch.record(name, _put_model(scratch, mode))


def model_download(name: str, rate: str) -> None:
    """The load is the captured command, and the download other work on the drive."""
    download_bytes = 22 * RATES[rate]
    with emulated_drive(_MODEL_BYTES + _whole_blocks(download_bytes), SATA) as scratch, server(download_bytes) as url:
        scratch.record(name, _put_model(scratch, "read"), before=partial(_remove_download, scratch),
                       beside=partial(_download_under_way, scratch, url, rate))


def _put_model(scratch: Scratch, mode: str) -> Command:
    """Write the model to the drive. Returns the command that loads it."""
    directory = _environment("llama", ("xllamacpp==2026.10.11549", "gguf==0.19.0", "numpy==2.4.6"))
    python, model = directory / "bin/python", scratch.mount / "model.gguf"
    scratch.workspace.run(python, directory / "generate.py", model)
    return [python, directory / "load.py", model, mode]


def data_scan(name: str) -> None:
    """DuckDB, a table of 1.9 GB."""
    directory = _environment("parquet", ("duckdb==2.0.0",))
    python = directory / "bin/python"
    with emulated_drive(2300 << 20, SATA) as scratch:
        orders = scratch.mount / "orders"
        orders.mkdir()
        scratch.workspace.run(python, directory / "generate.py", orders)
        scratch.record(name, [python, directory / "query.py", orders])


def database(name: str, script: str, arguments: Sequence[str] = ()) -> None:
    """PostgreSQL, with its table on the drive. script: of samples/postgresql. arguments: behind its directory."""
    drive_path = "/srv"  # where the system has the drive
    data, scale = f"{drive_path}/database", 70  # 1.05 GB of rows, 0.15 GB of index
    with emulated_drive(1700 << 20, SATA) as scratch:
        scratch.install_elsewhere(Root("postgresql", ("postgresql",)), drive_path)
        for path in Path(__file__).with_name("postgresql").glob("*.sh"):
            scratch.write(f"/opt/{path.name}", path.read_text())
        scratch.run("install", "-d", "-o", "postgres", "-g", "postgres", data)
        scratch.run("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "sh", "/opt/create.sh",
                    data, str(scale))
        scratch.record(name, ["chroot", "--userspec=postgres:postgres", scratch.system, "sh", f"/opt/{script}.sh",
                              data, *arguments])


def download(name: str, rate: str, seconds: int, steady: bool = False) -> None:
    """curl. rate: a key of RATES. steady: with a limit of dirty data, else as the kernel writes back by default."""
    size_bytes = RATES[rate] * seconds
    with emulated_drive(_whole_blocks(size_bytes + _SPARE_BYTES), SATA) as scratch, server(size_bytes) as url:
        scratch.record(name, web_download(url, _download_target(scratch), rate),
                       before=partial(_remove_download, scratch),
                       beside=partial(limited_dirty_data, scratch) if steady else None, timed=False)


def torrent_download(name: str) -> None:
    """aria2c, an album of pictures at 25 MB/s. Tracker, seeder and pictures are in memory, beside the drive."""
    size_bytes = 1536 << 20
    with emulated_drive(3 << 30, EMMC, size_bytes + (64 << 20)) as scratch:
        served, directory = scratch.memory / "torrent", scratch.mount / "root/Downloads"
        album = served / "holiday"
        album.mkdir(parents=True)
        for number, file_bytes in enumerate(_file_sizes(size_bytes, 1.47e6)):
            make_payload(album / f"{number:04}.jpg", file_bytes)

        def empty() -> None:
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)

        with swarm(scratch.workspace, album, served) as torrent:
            command = download_command(torrent, directory, 25 << 20)
            # aria2c closes its file and leaves the rest to the page cache.
            scratch.record(name, ["sh", "-c", '"$@" && sync', "download", *command], before=empty, timed=False)


def file_copy(name: str, size_bytes: int) -> None:
    with emulated_drive(size_bytes + _SPARE_BYTES, SATA) as scratch:
        source, target = scratch.workspace.path / "film.mkv", scratch.mount / "film.mkv"
        make_payload(source, size_bytes)
        scratch.record(name, ["sh", "-c", 'cp "$0" "$1" && sync -f "$1"', source, target],
                       before=partial(target.unlink, missing_ok=True))


def update_unpack(name: str, size_bytes: int) -> None:
    """tar and zstd, from and to the same drive."""
    with emulated_drive(3800 << 20, NVME) as scratch:
        archive, game = scratch.mount / "update.tar.zst", scratch.mount / "game"
        _pack(archive, size_bytes)
        scratch.record(name, ["sh", "-c", 'mkdir "$1" && tar --zstd -C "$1" -xf "$0" && sync -f "$1"', archive, game],
                       before=partial(shutil.rmtree, game, ignore_errors=True))


def _pack(archive: Path, size_bytes: int) -> None:
    """Of files that a compressor halves, about: each byte has one of 16 values."""
    numbers = random.Random(1)
    halved = bytes(value & 0x0f for value in range(256))
    with subprocess.Popen(["zstd", "--quiet", "-T2", "-o", archive], stdin=subprocess.PIPE) as packer:
        assert packer.stdin
        with tarfile.open(fileobj=packer.stdin, mode="w|") as tar:
            for number, file_bytes in enumerate(_file_sizes(size_bytes, 5e6)):
                file = tarfile.TarInfo(f"{number:03}.pak")
                file.size = file_bytes
                tar.addfile(file, io.BytesIO(numbers.randbytes(file_bytes).translate(halved)))


def update_verify(name: str, size_bytes: int) -> None:
    """aria2c hashes the pieces of a torrent, of 1 MiB each."""
    with emulated_drive(size_bytes + _SPARE_BYTES, SATA) as scratch:
        game, torrent = scratch.mount / "game", scratch.memory / "game.torrent"
        game.mkdir()
        for number, file_bytes in enumerate(_file_sizes(size_bytes, 50e6)):
            make_payload(game / f"{number:03}.pak", file_bytes)
        scratch.workspace.run("mktorrent", "-l", 20, "-a", "http://127.0.0.1:9/announce", "-o", torrent, game)
        scratch.record(name, [
            "aria2c", "--no-conf", "--check-integrity=true", "--hash-check-only=true", "--enable-dht=false",
            "--enable-dht6=false", "--bt-enable-lpd=false", "--console-log-level=warn", "--summary-interval=0",
            "--show-console-readout=false", "--dir", scratch.mount, torrent])


def game_load(name: str, map_name: str, play_seconds: int, rate: str | None = None) -> None:
    """0 A.D. from its start to a loaded map and some play. rate: beside a download, which is no part of the command."""
    download_bytes = 90 * RATES[rate] if rate else 0  # for longer than the game
    with (emulated_drive(_whole_blocks((3900 << 20) + download_bytes), SATA) as scratch,
          screen(scratch.workspace.environment, "1024x768") as display, server(download_bytes) as url):
        scratch.install_elsewhere(strategy_game.ROOT, strategy_game.DATA)
        variables = {**display, "ALSOFT_DRIVERS": "null"}
        scratch.run("install", "-d", "-o", strategy_game.USER, strategy_game.HOME)
        command = strategy_game.game_in(scratch.system, map_name, play_seconds)
        # It stores settings and compiled shaders the first time.
        scratch.settle()
        scratch.time(command, variables)
        scratch.record(name, command, variables, before=partial(_remove_download, scratch), timed=False,
                       beside=partial(_download_under_way, scratch, url, rate) if rate else None)
        scratch.settle()
        scratch.time(command, variables)


def app_start(name: str) -> None:
    """LibreOffice Writer, with a letter."""
    letter = f"{HOME}/letter.odt"
    with emulated_drive(2 << 30, SATA) as scratch, screen(scratch.workspace.environment) as variables:
        scratch.install(Root("office", ("libreoffice-writer", "fonts-dejavu-core")))
        # The letter, and by the way the settings that Writer makes at its very first start.
        scratch.write(f"{HOME}/letter.txt", "Dear reader,\n\n" + "this is a line of a letter. " * 2000 + "\n")
        scratch.run("soffice", "--headless", "--convert-to", "odt", "--outdir", HOME, f"{HOME}/letter.txt")
        # It would wait for its window to be closed.
        command = ["timeout", "--signal=KILL", "30", "soffice", "--writer", "--norestore", letter]
        scratch.record(name, ["chroot", scratch.mount, *command], variables, ends_with=(137,), timed=False)


def package_install(name: str, package: str) -> None:
    """dpkg, with packages that were downloaded before."""
    root = Root("install", hooks=(f'chroot "$1" apt-get install --yes --download-only {package}',),
                skip="cleanup/apt/cache,cleanup/apt/lists")
    with emulated_drive(2 << 30, EMMC) as scratch:
        # Not apt-get, which looks for the end of dpkg every half second: that would count as computing.
        command = ["sh", "-c", "dpkg --install /var/cache/apt/archives/*.deb"]
        # Without names: those of 4,000 files would be three quarters of the trace.
        scratch.record(name, ["chroot", scratch.mount, *command], files=False, before=partial(scratch.install, root))


def _whole_blocks(size_bytes: int) -> int:
    return size_bytes // 4096 * 4096


def _file_sizes(total_bytes: int, median_bytes: float) -> Iterator[int]:
    """Sizes of files around the median, some much larger. The same each time."""
    numbers = random.Random(1)
    while total_bytes > 0:
        size_bytes = min(total_bytes, int(numbers.lognormvariate(math.log(median_bytes), 0.7)))
        yield size_bytes
        total_bytes -= size_bytes


def _download_target(scratch: Scratch) -> Path:
    return scratch.mount / "download.bin"


def _remove_download(scratch: Scratch) -> None:
    _download_target(scratch).unlink(missing_ok=True)


@contextmanager
def _download_under_way(scratch: Scratch, url: str, rate: str) -> Iterator[None]:
    # With a limit of dirty data: the page cache that a load fills raises the default limits.
    with limited_dirty_data(scratch), download_beside(scratch, web_download(url, _download_target(scratch), rate)):
        time.sleep(_UNDER_WAY_S)
        yield


RECIPES: dict[str, Callable[[str], None]] = {
    "model-load": partial(model_load, mode="read"),
    "model-load-mmap": partial(model_load, mode="mmap"),
    "model-load-direct": partial(model_load, mode="direct"),
    "model-download": partial(model_download, rate="1g"),
    "data-scan": data_scan,
    "database-restart": partial(database, script="restart"),
    "database-queries": partial(database, script="queries", arguments=("8", "2500")),  # clients, transactions of each
    "download-300m-steady": partial(download, rate="300m", seconds=95, steady=True),
    "download-1g-steady": partial(download, rate="1g", seconds=65, steady=True),
    "download-300m": partial(download, rate="300m", seconds=95),
    "download-1g": partial(download, rate="1g", seconds=65),
    "file-copy": partial(file_copy, size_bytes=8_000_000_000),
    "update-unpack": partial(update_unpack, size_bytes=2_100_000_000),
    "update-verify": partial(update_verify, size_bytes=5_000_000_000),
    "game-small": partial(game_load, map_name="arcadia", play_seconds=5),
    "game-load": partial(game_load, map_name="units_demo", play_seconds=40),
    "game-download": partial(game_load, map_name="units_demo", play_seconds=40, rate="300m"),
    "download": torrent_download,
    "app-start": app_start,
    "package-install": partial(package_install, package="build-essential"),
}


def _environment(name: str, packages: tuple[str, ...]) -> Path:
    """The directory of an environment with these packages and the scripts of samples/NAME, made once.

    Outside the working tree, whose path would be in the command line of a trace.
    """
    directory = WORK / f"blkreel-{name}"
    python = directory / "bin/python"
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    result = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages],
                            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if result.returncode:
        raise BlkreelError(f"pip install failed: {result.stderr[-2000:]}", "pip config set global.index-url URL")
    for script in (Path(__file__).parent / name).glob("*.py"):
        shutil.copy(script, directory)
    return directory
