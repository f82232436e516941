"""A language model of 4.15 GB, and llama.cpp that loads it."""

from pathlib import Path

from environment import environment
from scratch import EMMC, RECORDINGS, SATA, Scratch, emulated_drive

_PACKAGES = ("xllamacpp==2026.10.11549", "gguf==0.19.0", "numpy==2.4.6")
MODEL_BYTES = 4400 << 20  # with the file system


def record_load(name: str, mode: str) -> None:
    """mode: read, mmap or direct."""
    with emulated_drive(MODEL_BYTES, EMMC if mode == "read" else SATA) as scratch:
        command = put_model(scratch, mode)
        for _ in range(RECORDINGS):
            scratch.settle()
            scratch.record_best(name, command)
        scratch.settle()
        scratch.time(command)


def put_model(scratch: Scratch, mode: str) -> list[str | Path]:
    """Write the model to the drive. Returns the command that loads it."""
    directory = environment("llama", _PACKAGES)
    python = directory / "bin/python"
    model = scratch.mount / "model.gguf"
    scratch.workspace.run(python, directory / "generate.py", model)
    return [python, directory / "load.py", model, mode]
