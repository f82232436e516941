"""A game loads from a cold cache: SuperTuxKart's menu, then a race."""

from game import DRIVE_BYTES, ENDS_WITH, play, put_game
from scratch import make_sample, scratch_drive
from screen import screen


def make(name: str) -> None:
    with scratch_drive(DRIVE_BYTES) as scratch, screen(scratch.workspace) as environment:
        put_game(scratch, environment)
        scratch.record(name, ["chroot", scratch.mount, *play(60)], environment, ENDS_WITH)


make_sample("game-load", make)
