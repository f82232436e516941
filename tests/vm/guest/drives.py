"""Drives of the guest, found by serial number, and the kernel's own trace of them."""

import time
from pathlib import Path

CONFIG_NULL_BLK = Path("/sys/kernel/config/nullb")
TRACING = Path("/sys/kernel/tracing")


def nvme_controllers():
    """Serial -> directory of the controller in sysfs."""
    return {(path / "serial").read_text().strip(): path for path in Path("/sys/class/nvme").iterdir()}


def nvme_path(serial):
    """The block device of an emulated drive, waited for where it is just coming back."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        controller = nvme_controllers().get(serial)
        for namespace in controller.glob("nvme*n*") if controller else ():
            path = Path("/dev", namespace.name)
            if path.exists():
                return str(path)
        time.sleep(0.1)
    raise AssertionError(f"no drive {serial}: {list(nvme_controllers())}")


def multipath_head(serial):
    """The block device of a namespace with several paths, waited for until it is there."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        for subsystem in Path("/sys/class/nvme-subsystem").iterdir():
            for head in subsystem.glob("nvme*n*"):
                if (subsystem / "serial").read_text().strip() == serial and Path("/dev", head.name).exists():
                    return f"/dev/{head.name}"
        time.sleep(0.1)
    raise AssertionError(f"no multipath head {serial}")


def make_null_drive(name, **attributes):
    """Path of a new drive made of nothing, and its directory, whose removal removes it. Sizes in MiB."""
    directory = CONFIG_NULL_BLK / name
    directory.mkdir()
    for attribute, value in {"size": 64, "memory_backed": 0, "queue_mode": 2, **attributes}.items():
        (directory / attribute).write_text(str(value))
    (directory / "power").write_text("1")
    # Newer kernels name it as its directory.
    names = name, f"nullb{(directory / 'index').read_text().strip()}"
    return str(next(path for path in map(Path("/dev").joinpath, names) if path.exists())), directory


def counters(drive):
    """Reads, reads merged, writes, writes merged, discards and flushes that the kernel has counted."""
    fields = [int(field) for field in Path("/sys/block", Path(drive).name, "stat").read_text().split()]
    return dict(zip(("reads", "reads_merged", "writes", "writes_merged", "discards", "flushes"),
                    (fields[at] for at in (0, 1, 4, 5, 11, 15)), strict=True))


class Tracing:
    """An instance of the kernel's tracing for one test; close() gives it back."""

    def __init__(self, name):
        self.path = TRACING / "instances" / name
        self._switches: list[Path] = []
        self.path.mkdir()
        (self.path / "buffer_size_kb").write_text("8192")

    def enable(self, event, filter_text=None):
        if filter_text:
            (self.path / "events" / event / "filter").write_text(filter_text)
        switch = self.path / "events" / event / "enable"
        switch.write_text("1")
        self._switches.append(switch)

    def text(self):
        return (self.path / "trace").read_text()

    def close(self):
        # The directory has thousands of files, which the guest reads in ten seconds.
        for switch in reversed(self._switches):
            switch.write_text("0")
        self.path.rmdir()
