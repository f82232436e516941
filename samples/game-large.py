"""A strategy game starts on a large map, and is played for some time: 0 A.D."""

from scratch import make_sample
from strategy_game import record


def make(name: str) -> None:
    record(name, "units_demo", 40)


make_sample("game-large", make)
