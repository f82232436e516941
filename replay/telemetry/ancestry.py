"""Which devices a drive is reached through, by sysfs."""

from pathlib import Path


def ancestors(disk: Path) -> list[Path]:
    """The sysfs directories of a drive and of the devices above it, the nearest first.

    An NVMe drive of a subsystem lies under none of its controllers; the subsystem has links to them.
    """
    disk = disk.resolve()
    found = [disk, *disk.parents]
    for link in sorted(disk.parent.glob("nvme[0-9]*")):
        if link.is_symlink():
            controller = link.resolve()
            found += [controller, *controller.parents]
    return list(dict.fromkeys(found))
