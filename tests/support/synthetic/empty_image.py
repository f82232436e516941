"""Image files to replay on, and what they hold."""

import hashlib
import os
from pathlib import Path

import numpy as np


def empty_image(path, size_bytes):
    path.touch()
    os.truncate(path, 0)
    os.truncate(path, size_bytes)
    return path


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def stamped(path):
    """Which blocks begin with a stamp that holds their own place, as native/payload.h says."""
    words = np.frombuffer(Path(path).read_bytes(), "<u8").reshape(-1, 512)
    return (words[:, 0] != 0) & (words[:, 1] == np.arange(len(words)) * 4096)
