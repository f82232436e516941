"""A download at 1 Gbit/s with a limit of dirty data, so that it is written back steadily."""

from scratch import make_sample
from web import record_download


def make(name: str) -> None:
    record_download(name, "1g", steady=True)


make_sample("download-1g-steady", make)
