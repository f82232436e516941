"""A language model of 4 GB loads from a cold cache: llama.cpp with direct I/O."""

from model import record_load
from scratch import make_sample


def make(name: str) -> None:
    record_load(name, "direct")


make_sample("model-load-direct", make)
