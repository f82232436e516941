"""A download of 5 GB is verified: aria2c hashes all pieces of a torrent."""

from bittorrent import sizes
from scratch import RECORDINGS, SATA, Command, emulated_drive, make_sample
from swarm import make_payload

_BYTES = 5_000_000_000
_FILES_MEDIAN_BYTES = 50e6
_PIECE_LENGTH_POWER = 20  # 1 MiB


def make(name: str) -> None:
    with emulated_drive(_BYTES + (320 << 20), SATA) as scratch:
        game = scratch.mount / "game"
        game.mkdir()
        for number, file_bytes in enumerate(sizes(_BYTES, _FILES_MEDIAN_BYTES)):
            make_payload(game / f"{number:03}.pak", file_bytes)
        torrent = scratch.memory / "game.torrent"
        scratch.workspace.run("mktorrent", "-l", _PIECE_LENGTH_POWER, "-a", "http://127.0.0.1:9/announce",
                              "-o", torrent, game)
        command: Command = [
            "aria2c", "--no-conf", "--check-integrity=true", "--hash-check-only=true", "--enable-dht=false",
            "--enable-dht6=false", "--bt-enable-lpd=false", "--console-log-level=warn", "--summary-interval=0",
            "--show-console-readout=false", "--dir", scratch.mount, torrent,
        ]
        for _ in range(RECORDINGS):
            scratch.settle()
            scratch.record_best(name, command)
        scratch.settle()
        scratch.time(command)


make_sample("update-verify", make)
