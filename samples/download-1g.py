"""A download at 1 Gbit/s as the kernel writes it back by default."""

from scratch import make_sample
from web import record_download


def make(name: str) -> None:
    record_download(name, "1g")


make_sample("download-1g", make)
