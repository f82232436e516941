"""Install blkreel below a prefix, or remove it. Used by `make install`, `make uninstall` and debian/rules.

    python install.py --prefix /usr/local install dist/blkreel-*.whl
    python install.py --prefix /usr/local uninstall

The command and its Python packages are a private environment, PREFIX/lib/blkreel. Outside it there are only the
command, man pages, completion and the unit of the flight recorder; the manifest in that environment lists them, so
that `uninstall` removes exactly what an older version installed.
"""

import argparse
import compileall
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from py_compile import PycInvalidationMode

HERE = Path(__file__).parent
UNIT = "blkreel-recorder.service"
MANIFEST = "installed-files"


class Installation:
    """prefix: where the files are used. destdir: directory in which the tree is made, "" for the running system."""

    def __init__(self, prefix: Path, destdir: str):
        self.prefix = prefix
        self._root = Path(destdir) if destdir else None
        self.environment = prefix / "lib/blkreel"

    def staged(self, path: Path) -> Path:
        """Where a file of the prefix is written."""
        return self._root / path.relative_to("/") if self._root else path

    def install(self, wheel: Path) -> None:
        os.umask(0o022)  # all users may run it, whatever the umask of root
        self.uninstall()
        command = self.prefix / "bin/blkreel"
        if os.path.lexists(self.staged(command)):
            sys.exit(f"blkreel: cannot install {command}: it exists, and is of another installation; remove that "
                     "(pip uninstall blkreel), or choose another PREFIX")
        environment = self.staged(self.environment)
        self._make_environment(environment, wheel)
        share = self.prefix / "share"
        pages = share / "man/man1"
        self.staged(pages).mkdir(parents=True, exist_ok=True)
        self._list(*(pages / name for name in self._write_man_pages(environment, self.staged(pages))))
        completion = {"bash": share / "bash-completion/completions/blkreel",
                      "zsh": share / "zsh/site-functions/_blkreel",
                      "fish": share / "fish/vendor_completions.d/blkreel.fish"}
        for shell, path in completion.items():
            self._copy(HERE / f"completion/blkreel.{shell}", path)
        self._copy(HERE / UNIT, self.prefix / "lib/systemd/system" / UNIT)
        self.staged(command).parent.mkdir(parents=True, exist_ok=True)
        self._list(command)
        self.staged(command).symlink_to("../lib/blkreel/bin/blkreel")
        print(f"installed {command}; files outside {self.environment}: {self.environment / MANIFEST}")

    def uninstall(self) -> bool:
        """Remove what an installation made; False if there is none."""
        environment = self.staged(self.environment)
        if not (environment / MANIFEST).is_file():
            if environment.exists():
                sys.exit(f"blkreel: cannot replace {environment}: not an installation of blkreel (no {MANIFEST} in it)")
            return False
        for line in (environment / MANIFEST).read_text().splitlines():
            self.staged(Path(line)).unlink(missing_ok=True)
        for entry in environment.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
        shutil.rmtree(environment)  # the manifest last, so that an interrupted removal can be repeated
        return True

    def _list(self, *paths: Path) -> None:
        """Add files to the manifest as they are made: an installation may be interrupted or fail."""
        with (self.staged(self.environment) / MANIFEST).open("a") as manifest:
            manifest.writelines(f"{path}\n" for path in paths)

    def _make_environment(self, environment: Path, wheel: Path) -> None:
        environment.mkdir(parents=True)
        (environment / MANIFEST).touch()  # first, so that an installation that is interrupted can be repeated
        venv.create(environment, symlinks=True, with_pip=False)
        python = environment / "bin/python"
        subprocess.run([sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile",
                        "--disable-pip-version-check", "--root-user-action=ignore",
                        "-c", str(HERE.parent / "constraints.txt"), str(wheel)], check=True)
        for script in (environment / "bin").iterdir():
            if script.name != "blkreel" and not script.name.startswith("python"):
                script.unlink()  # programs and activation scripts that are not for users
        command = environment / "bin/blkreel"
        # pip writes one line, or three of sh for a path with a space, which would name the directory of the build.
        rest = re.sub(r"\A#!.*\n(?:'''exec'.*\n.*\n)?", "", command.read_text())
        # -I: neither the caller's directory nor PYTHONPATH may replace a package of a command that runs as root.
        command.write_text(f"#!{self.environment / 'bin/python'} -I\n{rest}")
        settings = environment / "pyvenv.cfg"
        settings.write_text("".join(line for line in settings.read_text().splitlines(keepends=True)
                                    if not line.startswith("command")))  # names the directory of the build
        for record in environment.glob("lib/python*/site-packages/*.dist-info/direct_url.json"):
            record.unlink()  # names the directory of the build
        # By hash: the times of the files change when they are packaged.
        compileall.compile_dir(environment / "lib", quiet=2, workers=0, maxlevels=30, stripdir=str(self._root or "/"),
                               prependdir="/", invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)

    def _write_man_pages(self, environment: Path, directory: Path) -> list[str]:
        result = subprocess.run([environment / "bin/python", "-I", HERE / "man_pages.py", directory],
                                check=True, stdout=subprocess.PIPE, text=True)
        return result.stdout.split()

    def _copy(self, source: Path, path: Path) -> None:
        target = self.staged(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._list(path)
        target.write_text(source.read_text().replace("@PREFIX@", str(self.prefix)))
        target.chmod(0o644)


def main() -> None:
    parser = argparse.ArgumentParser(description="Install blkreel below a prefix, or remove it.")
    parser.add_argument("--prefix", type=Path, default=Path("/usr/local"))
    parser.add_argument("--destdir", default="")
    parser.add_argument("action", choices=("install", "uninstall"))
    parser.add_argument("wheel", type=Path, nargs="?")
    options = parser.parse_args()
    if not options.prefix.is_absolute():
        parser.error(f"--prefix {options.prefix}: not an absolute path")
    if re.search(r"\s", str(options.prefix)):
        parser.error(f"--prefix {options.prefix}: has a space, which the first line of a command and a unit of systemd "
                     "cannot hold; choose another PREFIX")
    installation = Installation(options.prefix, options.destdir)
    try:
        if options.action == "uninstall":
            removed = installation.uninstall()
            print(f"{'removed' if removed else 'not installed'}: {installation.environment}")
        elif options.wheel is None:
            parser.error("install: no wheel given")
        else:
            installation.install(options.wheel)
    except PermissionError as error:
        sys.exit(f"blkreel: {error.filename}: {error.strerror}; run it with sudo, or choose another PREFIX")
    except subprocess.CalledProcessError as error:
        sys.exit(f"blkreel: installation failed: {error}")


if __name__ == "__main__":
    main()
