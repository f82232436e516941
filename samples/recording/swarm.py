"""A torrent on the loopback address: a tracker, a seeder and a rate-limited download."""

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from blkreel.cli.demo.workspace import Workspace
from blkreel.common.errors import BlkreelError

_PIECE_LENGTH_POWER = 20
_BLOCK_BYTES = 8 << 20
_START_S = 10.0
_STOP_S = 5.0
_ATTEMPTS = 5
# Interval at which the client flushes its download to the drive. Without a flush, data stays in the page cache for up
# to 30 s (vm.dirty_expire_centisecs), and a short capture would record no write. The default of aria2c is 60 s; 2 s is
# the background load of the mixed-burst test.
_SAVE_EVERY_S = 2

# Loopback peers only, and without the user's aria2 settings.
_ARIA2C = (
    "aria2c", "--no-conf", "--interface=127.0.0.1", "--disable-ipv6=true", "--enable-dht=false", "--enable-dht6=false",
    "--bt-enable-lpd=false", "--enable-peer-exchange=false", "--console-log-level=warn", "--summary-interval=0",
    "--download-result=hide", "--show-console-readout=false",
)


def make_payload(path: Path, size_bytes: int) -> None:
    """Write incompressible data, as downloads are."""
    with path.open("xb") as file:
        for done in range(0, size_bytes, _BLOCK_BYTES):
            file.write(secrets.token_bytes(min(_BLOCK_BYTES, size_bytes - done)))


@contextmanager
def swarm(workspace: Workspace, payload: Path, directory: Path) -> Iterator[Path]:
    """Seed `payload` during the block. directory: for the torrent file, the tracker's list and the logs.

    Yields the torrent file.
    """
    tracker, torrent = _start_tracker(workspace, payload, directory)
    seeder = None
    try:
        command = [*_ARIA2C, "--dir", payload.parent, "--bt-seed-unverified=true", "--seed-ratio=0",
                   f"--listen-port={_free_port()}", f"--stop-with-process={os.getpid()}", torrent]
        seeder = _start(command, directory / "seeder.log", workspace.environment)
        yield torrent
    finally:
        for process in (seeder, tracker):
            _stop(process)


def download_command(torrent: Path, directory: Path, bytes_per_s: int) -> list[str]:
    """The command of a client that downloads into `directory` at a limited rate, then exits."""
    # Asks the tracker each second, not each half hour: the seeder may not have announced itself yet.
    command = [*_ARIA2C, "--dir", directory, "--file-allocation=falloc", f"--auto-save-interval={_SAVE_EVERY_S}",
               f"--max-download-limit={bytes_per_s}", "--bt-tracker-interval=1", "--seed-time=0",
               f"--listen-port={_free_port()}", f"--stop-with-process={os.getpid()}", torrent]
    return [str(word) for word in command]


def _stop(process: subprocess.Popen[bytes] | None) -> None:
    """Stop a client or the tracker. SIGTERM first, so that a client flushes its data."""
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_words(log: Path) -> str:
    """The last line of a log, for an error message."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


def _start_tracker(workspace: Workspace, payload: Path, directory: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a tracker; returns it and the torrent, which names its port.

    Tries several ports, since another process may take a free port before the tracker binds it.
    """
    torrent = directory / f"{payload.name}.torrent"
    for _ in range(_ATTEMPTS):
        port = _free_port()
        torrent.unlink(missing_ok=True)
        workspace.run("mktorrent", "-l", _PIECE_LENGTH_POWER, "-a", f"http://127.0.0.1:{port}/announce", "-o", torrent,
                      payload)
        # Debian's opentracker serves only torrents on its list, which it reads below its chroot directory.
        root = directory / "tracker"
        root.mkdir(exist_ok=True)
        root.chmod(0o755)  # opentracker runs as nobody
        (root / "allowed").write_text(_info_hash(workspace, torrent) + "\n")
        (root / "allowed").chmod(0o644)
        log = directory / "tracker.log"
        command = ["opentracker", "-i", "127.0.0.1", "-p", port, "-d", root, "-w", "allowed"]
        tracker = _start(command, log, workspace.environment)
        if _answers(port, tracker):
            return tracker, torrent
        _stop(tracker)
    raise BlkreelError(f"opentracker does not start: {_last_words(log)}", f"run: {' '.join(map(str, command))}")


def _answers(port: str, process: subprocess.Popen[bytes]) -> bool:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.02)
            continue
        # If another process has the port, it answers too, and our tracker exits.
        time.sleep(0.1)
        return process.poll() is None
    return False


def _info_hash(workspace: Workspace, torrent: Path) -> str:
    for line in workspace.run(*_ARIA2C, "--show-files=true", torrent).splitlines():
        if line.startswith("Info Hash:"):
            return line.split()[-1]
    raise BlkreelError(f"aria2c shows no hash of {torrent}", f"run: aria2c --show-files {torrent}")


def _start(command: Sequence[object], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=file,
                                stderr=subprocess.STDOUT, env=environment)


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
