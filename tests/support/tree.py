"""Paths of this checkout, and of recordings made by others."""

import os
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[2]
# They lie beside a checkout, where there are any: they are theirs to give away.
FOREIGN = Path(os.environ.get("BLKREEL_FOREIGN_TRACES", TREE.parent / "shared" / "samples"))
# Recordings of a game with many programs, files and kinds of I/O, alone and beside a download.
# The start of an office application.
APP_START, COMPILE, GAME_DOWNLOAD, GAME_LOAD, PACKAGE_INSTALL = (
    f"{TREE}/tests/golden/traces/{name}.parquet" for name in (
        "app-start", "compile", "game-download", "game-load", "package-install"))


def foreign(name):
    """The path of a recording made by others; skips the test without it."""
    if not (FOREIGN / name).exists():
        pytest.skip(f"needs {name}: name its directory in BLKREEL_FOREIGN_TRACES")
    return FOREIGN / name
