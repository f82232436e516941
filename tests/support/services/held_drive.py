"""A drive that holds writes in flight until a test releases them: the file system below it is frozen."""

import subprocess
from contextlib import contextmanager
from pathlib import Path

from loop_device import attach_loop, detach_loop
from waiting import wait_until


class HeldDrive:
    def __init__(self, path, mount):
        self.path, self.mount = path, mount

    def hold(self):
        subprocess.run(["fsfreeze", "--freeze", self.mount], check=True)

    def let_go(self):
        subprocess.run(["fsfreeze", "--unfreeze", self.mount], check=False, stderr=subprocess.DEVNULL)

    def write(self):
        """A write of 4 KiB at 0, to a drive that is held; comes back when the driver has it. The process that waits."""
        writer = subprocess.Popen(["dd", "if=/dev/zero", f"of={self.path}", "bs=4k", "count=1", "oflag=direct",
                                   "status=none"])
        # Begun is not issued: the thread sleeps for it when it has handed it on.
        wait_until(lambda: self.in_flight() == 1 and state_of(writer.pid) == "D")
        return writer

    def in_flight(self):
        return int(Path("/sys/block", Path(self.path).name, "stat").read_text().split()[8])


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def restore_request_size(drive):
    """A loop device keeps the largest request that was set while it had another image."""
    queue = Path("/sys/class/block", Path(drive).name, "queue")
    (queue / "max_sectors_kb").write_text((queue / "max_hw_sectors_kb").read_text())


@contextmanager
def held_drive(below, mount):
    """below: a scratch drive to put a file system on; mount: a directory for it, which is made."""
    subprocess.run(["mkfs.ext4", "-q", below], check=True)
    mount.mkdir()
    subprocess.run(["mount", below, mount], check=True)
    drive = None
    try:
        with open(mount / "image", "wb") as image:
            image.truncate(16 << 20)
        path = attach_loop(mount / "image")
        restore_request_size(path)
        drive = HeldDrive(path, mount)
        yield drive
    finally:
        if drive:
            drive.let_go()
            wait_until(lambda: drive.in_flight() == 0)
            detach_loop(drive.path)
        wait_until(lambda: subprocess.run(["umount", mount], stderr=subprocess.DEVNULL).returncode == 0)
