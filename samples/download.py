"""A BitTorrent download: aria2c, an album of pictures, at 25 MB/s from a seeder on the same machine."""

from bittorrent import DOWNLOADS, torrent
from scratch import make_sample, scratch_drive
from swarm import download_command

_BYTES = 512 << 20
_BYTES_PER_S = 25 << 20


def make(name: str) -> None:
    with scratch_drive(2 << 30, _BYTES + (64 << 20)) as scratch, torrent(scratch, _BYTES) as file:
        scratch.settle()
        command = download_command(file, scratch.mount / DOWNLOADS, _BYTES_PER_S)
        # aria2c closes its file and leaves the rest to the page cache.
        scratch.record(name, ["sh", "-c", '"$@" && sync', "download", *command])


make_sample("download", make)
