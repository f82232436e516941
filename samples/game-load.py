"""A strategy game starts on a large map, and is played for some time: 0 A.D."""

from scratch import make_sample
from strategy_game import LARGE_MAP, PLAY_S, record


def make(name: str) -> None:
    record(name, LARGE_MAP, PLAY_S)


make_sample("game-load", make)
