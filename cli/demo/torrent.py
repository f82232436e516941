"""A torrent on the loopback address: a tracker and a seeder for as long as wanted, and a rate-limited download."""

import os
import secrets
import socket
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from blkreel.traces.errors import BlkreelError

_PIECE_LENGTH_POWER = 20
_BLOCK_BYTES = 8 << 20
_START_S = 10.0
_STOP_S = 5.0
_ATTEMPTS = 5
# How often the client writes what it has downloaded out to the drive, as fsync before it saves its progress.
# A download that is never flushed stays in the page cache for up to 30 s (vm.dirty_expire_centisecs) and a short
# capture would see no write at all. aria2c's own default is 60 s; 2 s is the background load of the mixed-burst test.
_SAVE_EVERY_S = 2

# Nothing but the loopback address is asked for peers, and nothing of the user's own aria2 settings is read.
_ARIA2C = (
    "aria2c", "--no-conf", "--interface=127.0.0.1", "--disable-ipv6=true", "--enable-dht=false", "--enable-dht6=false",
    "--bt-enable-lpd=false", "--enable-peer-exchange=false", "--console-log-level=warn", "--summary-interval=0",
    "--download-result=hide", "--show-console-readout=false",
)


@dataclass(frozen=True)
class Swarm:
    """torrent: the file a client needs. payload: what it gets."""

    torrent: Path
    payload: Path


def make_payload(path: Path, size_bytes: int) -> None:
    """Incompressible, as downloads are."""
    with path.open("xb") as file:
        for done in range(0, size_bytes, _BLOCK_BYTES):
            file.write(secrets.token_bytes(min(_BLOCK_BYTES, size_bytes - done)))


@contextmanager
def swarm(payload: Path, directory: Path, environment: dict | None = None):
    """Seed `payload`. directory: an existing one, for the torrent, the tracker's list and the logs."""
    tracker, torrent = _start_tracker(payload, directory, environment)
    seeder = None
    try:
        command = [*_ARIA2C, "--dir", payload.parent, "--bt-seed-unverified=true", "--seed-ratio=0",
                   f"--listen-port={_free_port()}", f"--stop-with-process={os.getpid()}", torrent]
        seeder = _start(command, directory / "seeder.log", environment)
        yield Swarm(torrent, payload)
    finally:
        for process in (seeder, tracker):
            stop(process)


def download_command(torrent: Path, directory: Path, bytes_per_s: int) -> list[str]:
    """What a client is called with that downloads into `directory` no faster than told, and ends when it has all."""
    # Asking the tracker each second instead of each half hour: the seeder may not have announced itself yet.
    command = [*_ARIA2C, "--dir", directory, "--file-allocation=falloc", f"--auto-save-interval={_SAVE_EVERY_S}",
               f"--max-download-limit={bytes_per_s}", "--bt-tracker-interval=1", "--seed-time=0",
               f"--listen-port={_free_port()}", f"--stop-with-process={os.getpid()}", torrent]
    return [str(word) for word in command]


def start_download(torrent: Path, directory: Path, bytes_per_s: int, log: Path,
                   environment: dict | None = None) -> subprocess.Popen:
    """That client, under way."""
    return _start(download_command(torrent, directory, bytes_per_s), log, environment)


def stop(process: subprocess.Popen | None) -> None:
    """End a client or the tracker: asked first, so that a client flushes what it has."""
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def last_words(log: Path) -> str:
    """The last thing a program wrote to its log, for an error message."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


def _start_tracker(payload, directory, environment):
    """A free port may be taken between finding and binding it, so some are tried. The torrent names the port."""
    torrent = directory / f"{payload.name}.torrent"
    for _ in range(_ATTEMPTS):
        port = _free_port()
        torrent.unlink(missing_ok=True)
        _run("mktorrent", "-l", _PIECE_LENGTH_POWER, "-a", f"http://127.0.0.1:{port}/announce", "-o", torrent, payload)
        # Debian's opentracker serves only torrents on its list, and reads that below the directory it is locked into.
        root = directory / "tracker"
        root.mkdir(exist_ok=True)
        root.chmod(0o755)  # it runs as nobody
        (root / "allowed").write_text(_info_hash(torrent) + "\n")
        (root / "allowed").chmod(0o644)
        log = directory / "tracker.log"
        command = ["opentracker", "-i", "127.0.0.1", "-p", port, "-d", root, "-w", "allowed"]
        tracker = _start(command, log, environment)
        if _answers(port, tracker):
            return tracker, torrent
        stop(tracker)
    raise BlkreelError(f"opentracker does not start: {last_words(log)}", f"try: {' '.join(map(str, command))}")


def _answers(port, process):
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
            continue
        # Whoever else had the port would answer too; then ours has ended, or is about to.
        time.sleep(0.1)
        return process.poll() is None
    return False


def _info_hash(torrent):
    for line in _run(*_ARIA2C, "--show-files=true", torrent).splitlines():
        if line.startswith("Info Hash:"):
            return line.split()[-1]
    raise BlkreelError(f"aria2c does not show the hash of {torrent}", f"try: aria2c --show-files {torrent}")


def _run(*command):
    result = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        raise BlkreelError(f"{command[0]} failed: {result.stdout.strip()}")
    return result.stdout


def _start(command, log, environment=None):
    with log.open("wb") as file:
        return subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=file,
                                stderr=subprocess.STDOUT, env=environment)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
