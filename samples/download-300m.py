"""A download at 300 Mbit/s as the kernel writes it back by default: in bursts."""

from scratch import make_sample
from web import record_download


def make(name: str) -> None:
    record_download(name, "300m")


make_sample("download-300m", make)
