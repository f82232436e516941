"""File systems in the guest's memory: the programs that it runs, and the contents of the drives."""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

# Needed for the commands of every program, besides the packages that are essential to Debian.
ALWAYS = ["e2fsprogs", "mount", "python3", "util-linux"]
# Files that every program opens but no package has, or only among files that are not needed.
ALSO = ("/usr/share/locale/locale.alias", "/usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache")
NOT_NEEDED = ("/usr/share/doc/", "/usr/share/locale/", "/usr/share/man/", "/boot/", "/lib/modules/",
              "/usr/share/games/0ad/mods/")  # on the drives
# What programs without files of their own read with direct I/O.
DATA = "data"
DATA_BYTES = 256 << 20


def system_image(packages, cache: Path) -> Path:
    """An ext4 image with the files of these installed packages, of those that they depend on, and of /etc."""
    listed = packages_with_dependencies([*ALWAYS, *packages])
    versions = output("dpkg-query", "--show", *listed)
    name = hashlib.sha256((versions + repr((ALSO, NOT_NEEDED))).encode()).hexdigest()[:16]
    image = cache / f"system-{name}.img"
    if not image.exists():
        with tempfile.TemporaryDirectory(dir=cache, prefix="system-") as directory:
            tree, new = Path(directory, "tree"), Path(directory, "image")
            tree.mkdir()
            copy_files(files_of(listed), tree)
            make_filesystem(tree, new, "-L", "system", "-O", "^has_journal")
            new.rename(image)
    return image


def contents_image(programs, image: Path) -> None:
    """An ext4 image with the files of each program in a directory that is named by its number."""
    with tempfile.TemporaryDirectory(prefix="blkreel-contents-") as directory:
        tree = Path(directory)
        tree.chmod(0o755)  # the server of a database runs as another user
        for number, program in enumerate(programs):
            if program.fill:
                (tree / str(number)).mkdir()
                program.fill(tree / str(number))
        if not all(program.fill for program in programs):
            with open(tree / DATA, "wb") as file:
                for _ in range(DATA_BYTES >> 20):
                    file.write(os.urandom(1 << 20))
        # No deferred initialization by the kernel during the measurement.
        make_filesystem(tree, image, "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0")


def make_filesystem(tree, image, *options):
    used_bytes = sum(path.lstat().st_size + 4096 for path in tree.rglob("*"))
    image.touch()
    os.truncate(image, ((used_bytes * 5 // 4 >> 27) + 2) << 27)
    output("mkfs.ext4", "-q", "-F", "-b", "4096", *options, "-d", tree, image)


def packages_with_dependencies(packages) -> list[str]:
    states = [line.split() for line in output(
        "dpkg-query", "--show", "-f", "${Package} ${db:Status-Status} ${Essential}\n").splitlines()]
    essential = [package for package, _, is_essential in states if is_essential == "yes"]
    lines = output("apt-cache", "depends", "--recurse", "--installed", "--important",
                   *essential, *packages).splitlines()
    # Indented lines are relations, <names> are virtual packages.
    dependencies = {line for line in lines if line and line[0] not in " <"}
    return sorted(dependencies & {package for package, state, _ in states if state == "installed"})


def files_of(packages) -> list[str]:
    """Paths without symbolic links to directories: packages call the same file /lib/x and /usr/lib/x."""
    paths = output("dpkg-query", "--listfiles", *packages).splitlines()
    wanted = [Path(path) for path in paths if path.startswith("/") and not path.startswith(NOT_NEEDED)]
    wanted += [*map(Path, ALSO), *Path("/etc").rglob("*")]
    return sorted({str(path.parent.resolve() / path.name) for path in wanted
                   if path.is_symlink() or (path.is_file() and os.access(path, os.R_OK))})


def copy_files(paths, tree):
    names = b"".join(os.fsencode(path.removeprefix("/")) + b"\0" for path in paths)
    archive = subprocess.Popen(["tar", "-C", "/", "--create", "--null", "--files-from=-"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    unpack = subprocess.Popen(["tar", "-C", tree, "--extract", "--no-same-owner"], stdin=archive.stdout)
    archive.stdin.write(names)
    archive.stdin.close()
    if archive.wait() or unpack.wait():
        raise SystemExit(f"cannot copy the programs of the guest to {tree}: see the message of tar above")


def output(*words):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{words[0]} failed: {result.stderr.strip()[-300:]}")
    return result.stdout
