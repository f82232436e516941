"""A strategy game starts on a small map: 0 A.D."""

from scratch import make_sample
from strategy_game import record


def make(name: str) -> None:
    record(name, "arcadia", 5)


make_sample("game-small", make)
