"""The decoder of blktrace events as a child process."""

from pathlib import Path

from .rows_child import RowsChild
from .spool import Spool

DECODER = Path(__file__).with_name("blkreel-blktrace")


class Decoder(RowsChild):
    """A running decoder. Its stdin takes lines that say how its inputs stand; stop() lets it read what there is."""

    def __init__(self, arguments: list[str], spool: Spool, on_change=lambda: None, pass_fds=()):
        super().__init__("the decoder", DECODER, arguments, spool, on_change, pass_fds=pass_fds)
