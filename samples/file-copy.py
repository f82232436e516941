"""A file of 8 GB is copied from another drive, and synced."""

from scratch import RECORDINGS, SATA, Command, emulated_drive, make_sample
from swarm import make_payload

_BYTES = 8_000_000_000


def make(name: str) -> None:
    with emulated_drive(_BYTES + (320 << 20), SATA) as scratch:
        source, target = scratch.workspace.path / "film.mkv", scratch.mount / "film.mkv"
        make_payload(source, _BYTES)
        command: Command = ["sh", "-c", 'cp "$0" "$1" && sync -f "$1"', source, target]
        for _ in range(RECORDINGS):
            target.unlink(missing_ok=True)
            scratch.settle()
            scratch.record_best(name, command)
        target.unlink()
        scratch.settle()
        scratch.time(command)


make_sample("file-copy", make)
