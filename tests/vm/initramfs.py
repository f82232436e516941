"""Builds the initramfs of a guest: busybox, the kernel modules that the tests need, and ./init."""

import fcntl
import gzip
import hashlib
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

from errors import CannotRun
from kernel import Kernel, module_bytes, modules_in_order, unpacked

BUSYBOX = Path("/bin/busybox")
INIT = Path(__file__).with_name("init")

# Modules in load order, with options. Soft dependencies that modprobe does not list (crc32c for ext4) are included.
MODULES = {
    "virtio_pci": "", "9pnet_virtio": "", "9p": "", "virtio_console": "", "virtio_blk": "",
    "crc32c_generic": "", "crc32c_intel": "", "libcrc32c": "",
    "nvme": "poll_queues=1", "nvme-tcp": "", "nvmet-tcp": "",
    "ext4": "", "loop": "max_loop=8", "null_blk": "nr_devices=0", "zram": "num_devices=0",
    "scsi_debug": "add_host=0 lbpws=1 lbprz=1 atomic_wr=1", "sd_mod": "",
    "dm-mod": "", "dm-delay": "", "dm-flakey": "", "dm-crypt": "", "dm-multipath": "", "dm-round-robin": "",
    "raid0": "", "raid1": "", "raid10": "", "raid456": "", "bcache": "",
    "mq-deadline": "", "bfq": "", "kyber-iosched": "",
    "nfit": "", "nd_pmem": "", "overlay": "", "btrfs": "",
    "fuse": "", "ublk_drv": "",
}


def build(package_file: Path) -> tuple[Path, Path]:
    """Kernel image and initramfs of a package, cached beside it and rebuilt when their inputs change."""
    if not BUSYBOX.exists():
        raise CannotRun("/bin/busybox not found; apt-get install busybox-static")
    recipe = hashlib.sha256(repr((sorted(MODULES.items()), list(MODULES))).encode() + INIT.read_bytes() +
                            BUSYBOX.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:16]
    directory = package_file.parent / f"{package_file.name.partition('_')[0]}-{recipe}"
    image, initramfs = directory / "vmlinuz", directory / "initramfs.gz"
    with open(package_file, "rb") as lock, ExitStack() as stack:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two guests may start at once
        if initramfs.exists():
            return image, initramfs
        for stale in package_file.parent.glob(f"{package_file.name.partition('_')[0]}-*"):
            shutil.rmtree(stale)
        kernel = stack.enter_context(unpacked(package_file))
        build_directory = Path(stack.enter_context(
            tempfile.TemporaryDirectory(dir=package_file.parent, prefix="build-")))
        (build_directory / "new").mkdir()
        _fill(build_directory / "tree", kernel)
        (build_directory / "new/initramfs.gz").write_bytes(_archive(build_directory / "tree"))
        shutil.copy(kernel.image, build_directory / "new/vmlinuz")
        (build_directory / "new").rename(directory)
    return image, initramfs


def _fill(tree: Path, kernel: Kernel):
    for name in ("bin", "modules", "proc", "sys", "dev", "host", "job"):
        (tree / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, tree / "bin/busybox")
    shutil.copy(INIT, tree / "init")
    (tree / "init").chmod(0o755)
    options = {name.replace("-", "_"): text for name, text in MODULES.items()}
    lines = []
    for number, path in enumerate(modules_in_order(kernel, MODULES)):
        name = path.name.partition(".")[0]
        file = tree / "modules" / f"{number:03}-{name}.ko"
        file.write_bytes(module_bytes(path))
        lines.append(f"{file.relative_to(tree)} {options.get(name.replace('-', '_'), '')}\n")
    (tree / "modules/list").write_text("".join(lines))


def _archive(tree: Path) -> bytes:
    names = "".join(f"{path.relative_to(tree)}\n" for path in sorted(tree.rglob("*")))
    result = subprocess.run(["cpio", "--create", "--format=newc", "--owner=0:0", "--quiet"], cwd=tree,
                            input=names.encode(), capture_output=True, check=True)
    return gzip.compress(result.stdout, 1)
