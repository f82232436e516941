"""Paths of this checkout, and of recordings made by others."""

import importlib.util
import os
import sys
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


def load_script(path):
    """The module of a file of this checkout that no package has. Dataclasses look it up in sys.modules meanwhile."""
    spec = importlib.util.spec_from_file_location(f"script_{Path(path).stem}", TREE / path)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
    return module


def foreign(name):
    """The path of a recording made by others; skips the test without it."""
    if not (FOREIGN / name).exists():
        pytest.skip(f"needs {name}: name its directory in BLKREEL_FOREIGN_TRACES")
    return FOREIGN / name
