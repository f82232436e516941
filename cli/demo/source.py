"""What lies on the demo's source drive: a copy of an application with its libraries, and data for it to read."""

import re
import shutil
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

# The packages whose import the demo captures. Their dependencies are copied with them.
APPLICATION = ("pandas", "pyarrow", "altair", "vl-convert-python")
_ROW_BYTES = 4 * 8
_FILES = 8


def copy_application(directory: Path) -> int:
    """Copy the application as installed for this interpreter into `directory`; the bytes copied."""
    copied_bytes = 0
    for package in _with_dependencies(APPLICATION):
        for file in package.files or ():
            source = Path(package.locate_file(file))
            # ".." leads out of the library directory, to scripts and data that an import does not read.
            if ".." in file.parts or not source.is_file():
                continue
            target = directory / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            copied_bytes += target.stat().st_size
    return copied_bytes


def make_dataset(directory: Path, size_bytes: int, seed: int = 1) -> int:
    """A Parquet dataset of `size_bytes` in several files; its rows. Random numbers: it must not shrink."""
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


def _with_dependencies(names) -> list[Distribution]:
    """The installed packages of these names and all that they need, each once."""
    found, wanted = {}, list(names)
    while wanted:
        name = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            # A dependency of another platform or Python version. One of ours would fail the launch, loudly.
            continue
        requirements = [text for text in found[name].requires or () if "extra ==" not in text]
        wanted += [re.match(r"[\w.-]+", text)[0] for text in requirements]
    return list(found.values())
