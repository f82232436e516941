"""The strategy game starts on the large map, and is played, beside a download at 300 Mbit/s to the same drive."""

from scratch import make_sample
from strategy_game import LARGE_MAP, PLAY_S, record


def make(name: str) -> None:
    record(name, LARGE_MAP, PLAY_S, download="300m")


make_sample("game-download", make)
