"""A language model of 4 GB loads from a cold cache: llama.cpp with a mapped file."""

from model import record_load
from scratch import make_sample


def make(name: str) -> None:
    record_load(name, "mmap")


make_sample("model-load-mmap", make)
