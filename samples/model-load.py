"""A language model of 4 GB loads from a cold cache: llama.cpp with plain reads. Only the model is on the drive."""

import shutil
import subprocess
import sys
from pathlib import Path

from scratch import WORK, make_sample, scratch_drive

from blkreel.common.errors import BlkreelError

_PACKAGES = ("xllamacpp==2026.10.11549", "gguf==0.19.0", "numpy==2.4.6")
_SCRIPTS = Path(__file__).with_name("llama")
_DRIVE_BYTES = 5 << 30


def make(name: str) -> None:
    # Outside the working tree, whose path would be in the command line of the trace.
    directory = WORK / "blkreel-llama"
    python = _python(directory)
    with scratch_drive(_DRIVE_BYTES, on_disk=True) as scratch:
        model = scratch.mount / "model.gguf"
        scratch.workspace.run(python, directory / "generate.py", model)
        scratch.settle()
        scratch.record(name, [python, directory / "load.py", model])


def _python(directory: Path) -> Path:
    """A Python environment with llama.cpp, created once, with the scripts beside it."""
    python = directory / "bin/python"
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    result = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *_PACKAGES],
                            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if result.returncode:
        raise BlkreelError(f"pip install failed: {result.stderr[-2000:]}", "pip config set global.index-url URL")
    for script in ("generate.py", "load.py"):
        shutil.copy(_SCRIPTS / script, directory)
    return python


make_sample("model-load", make)
