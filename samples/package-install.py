"""A package is installed: build-essential and all it needs, downloaded before."""

from scratch import Root, make_sample, scratch_drive

_PACKAGE = "build-essential"
_ROOT = Root("install", hooks=(f'chroot "$1" apt-get install --yes --download-only {_PACKAGE}',),
             skip="cleanup/apt/cache,cleanup/apt/lists")


def make(name: str) -> None:
    with scratch_drive(2 << 30) as scratch:
        scratch.install(_ROOT)
        scratch.settle()
        command = ["apt-get", "install", "--yes", "--no-download", "--no-install-recommends", _PACKAGE]
        # Without names: those of 4,000 files would be three quarters of the trace.
        scratch.record(name, ["chroot", scratch.mount, *command], files=False)


make_sample("package-install", make)
