"""Python environments for programs of PyPI."""

import shutil
import subprocess
import sys
from pathlib import Path

from blkreel.common.errors import BlkreelError

from .scratch import WORK


def environment(name: str, packages: tuple[str, ...]) -> Path:
    """The directory of an environment with these packages and the scripts of samples/NAME, made once.

    Outside the working tree, whose path would be in the command line of a trace.
    """
    directory = WORK / f"blkreel-{name}"
    python = directory / "bin/python"
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    result = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages],
                            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if result.returncode:
        raise BlkreelError(f"pip install failed: {result.stderr[-2000:]}", "pip config set global.index-url URL")
    for script in (Path(__file__).parents[1] / name).glob("*.py"):
        shutil.copy(script, directory)
    return directory
