"""A download at 300 Mbit/s with a limit of dirty data, so that it is written back steadily."""

from scratch import make_sample
from web import record_download


def make(name: str) -> None:
    record_download(name, "300m", steady=True)


make_sample("download-300m-steady", make)
