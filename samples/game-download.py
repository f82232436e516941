"""A game loads while a torrent downloads to the same drive."""

import time

from bittorrent import DOWNLOADS, torrent
from game import DRIVE_BYTES, ENDS_WITH, play, put_game
from scratch import make_sample, scratch_drive
from screen import screen
from swarm import start_download, stop

_SECONDS = 60
_BYTES_PER_S = 6 << 20
# More than the download can get done meanwhile, so that it goes on until the end.
_BYTES = _BYTES_PER_S * (_SECONDS + 20)
_UNDER_WAY_S = 4


def make(name: str) -> None:
    with (scratch_drive(DRIVE_BYTES + _BYTES, _BYTES + (64 << 20)) as scratch,
          screen(scratch.workspace) as environment):
        put_game(scratch, environment)
        with torrent(scratch, _BYTES) as file:
            client = start_download(file, scratch.mount / DOWNLOADS, _BYTES_PER_S,
                                    scratch.workspace.path / "download.log", scratch.workspace.environment)
            try:
                time.sleep(_UNDER_WAY_S)
                # The game is the captured command, and the download one of the others that use the drive.
                scratch.record(name, ["chroot", scratch.mount, *play(_SECONDS)], environment, ENDS_WITH)
            finally:
                stop(client)


make_sample("game-download", make)
