"""The content of the demo's source drive: an application with its libraries, and a dataset."""

import re
import shutil
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

# Packages whose import the demo captures; copied with their dependencies.
APPLICATION = ("pandas", "pyarrow", "rich", "vl-convert-python")
_ROW_BYTES = 4 * 8
_FILES = 8


def copy_application(directory: Path) -> int:
    """Copy the application, as installed for this interpreter, into `directory`. Returns the bytes copied."""
    copied_bytes = 0
    for package in _with_dependencies(APPLICATION):
        for file in package.files or ():
            source = Path(str(package.locate_file(file)))
            # "..": scripts and data outside the library directory, which an import does not read.
            if ".." in file.parts or not source.is_file():
                continue
            target = directory / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            copied_bytes += target.stat().st_size
    return copied_bytes


def make_dataset(directory: Path, size_bytes: int, seed: int = 1) -> int:
    """Write a Parquet dataset of `size_bytes` in several files, of random numbers. Returns its rows."""
    directory.mkdir()
    rows = max(1, size_bytes // _FILES // _ROW_BYTES)
    random = np.random.default_rng(seed)
    for number in range(_FILES):
        table = pa.table({
            "when": np.sort(random.integers(0, 2**62, rows)),
            "drive": random.integers(0, 2**62, rows),
            "latency": random.exponential(1e-4, rows),
            "size": random.random(rows),
        })
        pq.write_table(table, directory / f"part-{number}.parquet", compression="none", use_dictionary=False)
    return rows * _FILES


def _with_dependencies(names: Iterable[str]) -> list[Distribution]:
    """The installed packages of these names and their dependencies, each once."""
    packages: dict[str, Distribution] = {}
    queue = list(names)
    while queue:
        name = re.sub(r"[-_.]+", "-", queue.pop()).lower()
        if name in packages:
            continue
        try:
            packages[name] = distribution(name)
        except PackageNotFoundError:
            # A dependency of another platform or Python version. Without a needed one, the launch fails.
            continue
        requirements = [text for text in packages[name].requires or () if "extra ==" not in text]
        queue += [match[0] for text in requirements if (match := re.match(r"[\w.-]+", text))]
    return list(packages.values())
