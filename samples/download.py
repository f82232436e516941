"""A BitTorrent download: aria2c, an album of pictures, at 25 MB/s from a seeder on the same machine."""

import shutil

from bittorrent import DOWNLOADS, torrent
from scratch import EMMC, RECORDINGS, emulated_drive, make_sample
from swarm import download_command

_BYTES = 1536 << 20
_BYTES_PER_S = 25 << 20


def make(name: str) -> None:
    with emulated_drive(3 << 30, EMMC, _BYTES + (64 << 20)) as scratch, torrent(scratch, _BYTES) as file:
        directory = scratch.mount / DOWNLOADS
        command = download_command(file, directory, _BYTES_PER_S)
        for _ in range(RECORDINGS):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
            scratch.settle()
            # aria2c closes its file and leaves the rest to the page cache.
            scratch.record_best(name, ["sh", "-c", '"$@" && sync', "download", *command])


make_sample("download", make)
