"""Packages are installed: build-essential and all it needs, downloaded before."""

from scratch import EMMC, RECORDINGS, Root, emulated_drive, make_sample

_PACKAGE = "build-essential"
_ROOT = Root("install", hooks=(f'chroot "$1" apt-get install --yes --download-only {_PACKAGE}',),
             skip="cleanup/apt/cache,cleanup/apt/lists")


def make(name: str) -> None:
    with emulated_drive(2 << 30, EMMC) as scratch:
        # Not apt-get, which looks for the end of dpkg every half second: that would count as computing.
        command = ["sh", "-c", "dpkg --install /var/cache/apt/archives/*.deb"]
        for _ in range(RECORDINGS):
            scratch.install(_ROOT)
            scratch.settle()
            # Without names: those of 4,000 files would be three quarters of the trace.
            scratch.record_best(name, ["chroot", scratch.mount, *command], files=False)
        scratch.install(_ROOT)
        scratch.settle()
        scratch.time(["chroot", scratch.mount, *command])


make_sample("package-install", make)
