"""A program is compiled from a cold cache: git, with gcc, two files at a time."""

from scratch import HOME, Root, make_sample, scratch_drive

# Without what would need more libraries. -O0: the drive is of interest, not the optimizer.
_MAKE = ("make", "-j2", "CFLAGS=-O0", "NO_OPENSSL=1", "NO_CURL=1", "NO_EXPAT=1", "NO_GETTEXT=1", "NO_TCLTK=1",
         "NO_PERL=1", "NO_PYTHON=1", "all")
_ROOT = Root("compile", ("gcc", "make", "libc6-dev", "zlib1g-dev", "xz-utils"), hooks=(
    f'mkdir -p "$1{HOME}/git"',
    f'cd "$1{HOME}" && chroot "$1" sh -c "cd {HOME} && apt-get source --download-only git"',
    f'tar -xf "$1{HOME}"/git_*.orig.tar.xz -C "$1{HOME}/git" --strip-components=1',
    f'rm "$1{HOME}"/git_*'))


def make(name: str) -> None:
    with scratch_drive(2 << 30) as scratch:
        scratch.install(_ROOT)
        scratch.settle()
        # sync: what make has written is part of a compilation, though the page cache could keep it for a while.
        build = f"cd {HOME}/git && {' '.join(_MAKE)} && sync"
        # Without names, for the same reason as an installation.
        scratch.record(name, ["chroot", scratch.mount, "sh", "-c", build], files=False)


make_sample("compile", make)
