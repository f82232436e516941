"""Kernels from the Debian archive: finds, downloads once, and unpacks the package of a kernel."""

import gzip
import lzma
import re
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from errors import RigError


@dataclass(frozen=True)
class Kernel:
    release: str
    image: Path
    root: Path  # holds lib/modules/RELEASE


def find_package(name: str) -> str:
    """The package with the kernel; `name` may be a metapackage such as linux-image-amd64."""
    result = subprocess.run(["apt-cache", "depends", "--important", name], capture_output=True, text=True)
    target = re.search(r"Depends: (linux-image-\S*\d\S*)", result.stdout)
    return target.group(1) if target else name


def fetch_package(package: str, cache: Path) -> Path:
    """The file of the package in the cache, downloaded if missing."""
    cache.mkdir(parents=True, exist_ok=True)
    cached = sorted(cache.glob(f"{package}_*.deb"))
    if cached:
        return cached[-1]
    with tempfile.TemporaryDirectory(dir=cache, prefix="download-") as directory:
        result = subprocess.run(["apt-get", "-qq", "download", package], cwd=directory, capture_output=True, text=True)
        files = list(Path(directory).glob("*.deb"))
        if result.returncode or not files:
            reason = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise RigError(f"cannot download {package}: {reason}; sudo apt-get update, then try again")
        return files[0].rename(cache / files[0].name)


@contextmanager
def unpacked(package_file: Path):
    """Context manager: the kernel and modules of a package in a temporary directory."""
    with tempfile.TemporaryDirectory(dir=package_file.parent, prefix="unpack-") as directory:
        root = Path(directory)
        subprocess.run(["dpkg-deb", "--extract", package_file, root], check=True)
        image, = (root / "boot").glob("vmlinuz-*")
        release = image.name.removeprefix("vmlinuz-")
        modules = root / "lib/modules" / release
        subprocess.run(["depmod", "--basedir", root, release], check=True)
        if not (modules / "modules.dep").is_file():
            raise RigError(f"{package_file.name} has no kernel modules: the file may be damaged; rm {package_file}")
        yield Kernel(release, image, root)


def modules_in_order(kernel: Kernel, names) -> list[Path]:
    """The modules and their dependencies in load order, without those built into the kernel.

    Unknown modules are skipped: the tests that need them report this.
    """
    order: dict[Path, None] = {}
    for name in names:
        result = subprocess.run(["modprobe", "--dirname", kernel.root, "--set-version", kernel.release,
                                 "--ignore-install", "--show-depends", name], capture_output=True, text=True)
        for line in result.stdout.splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "insmod":
                order[Path(rest.split()[0])] = None
    return list(order)


def module_bytes(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".gz":
        return gzip.decompress(data)
    return data
