"""Paths of this checkout."""

from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
# Recordings of a game with many programs, files and kinds of I/O, alone and beside a download.
# The start of an office application.
APP_START, COMPILE, GAME_DOWNLOAD, GAME_LOAD, PACKAGE_INSTALL = (
    f"{TREE}/tests/golden/traces/{name}.parquet" for name in (
        "app-start", "compile", "game-download", "game-load", "package-install"))
