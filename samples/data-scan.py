"""A query reads a table of 1.9 GB in Parquet files from a cold cache: DuckDB."""

from environment import environment
from scratch import RECORDINGS, SATA, emulated_drive, make_sample

_PACKAGES = ("duckdb==2.0.0",)
_DRIVE_BYTES = 2300 << 20


def make(name: str) -> None:
    directory = environment("parquet", _PACKAGES)
    python = directory / "bin/python"
    with emulated_drive(_DRIVE_BYTES, SATA) as scratch:
        orders = scratch.mount / "orders"
        orders.mkdir()
        scratch.workspace.run(python, directory / "generate.py", orders)
        command = [python, directory / "query.py", orders]
        for _ in range(RECORDINGS):
            scratch.settle()
            scratch.record_best(name, command)
        scratch.settle()
        scratch.time(command)


make_sample("data-scan", make)
