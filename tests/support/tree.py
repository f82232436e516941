"""Paths of this checkout."""

from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
# Recordings of a game with many programs, files and kinds of I/O, alone and beside a download.
GAME_LOAD, GAME_DOWNLOAD = (f"{TREE}/tests/golden/traces/{name}.parquet" for name in ("game-load", "game-download"))
