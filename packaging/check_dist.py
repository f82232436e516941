"""Try the wheel and the source archive of a directory in clean virtual environments, and `make install` in a tree.

    python check_dist.py dist

Checks that the installed command works outside the checkout (version, a sample trace, a replay without a drive, and as
root the BPF programs), also with the oldest dependencies, that the archive builds the same wheel, and that uninstalling
leaves no file.
"""

import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

NOT_TRUSTWORTHY = 3  # exit code: there is no drive, and the machine may be busy
ROOT = Path(__file__).resolve().parents[1]


def only(directory: Path, pattern: str) -> Path:
    paths = sorted(directory.glob(pattern))
    if len(paths) != 1:
        sys.exit(f"check-dist: {len(paths)} files {directory}/{pattern}, not 1; run: make dist")
    return paths[0].resolve()


def run(*words: str | Path, cwd: Path, expected: Sequence[int] = (0,)) -> str:
    """Run a command with the environment of a user who never saw the checkout; returns its stdout."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(cwd), "LANG": "C.UTF-8",
                   **{name: value for name, value in os.environ.items() if name.startswith("PIP_")}}
    result = subprocess.run(words, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True)
    if result.returncode not in expected:
        sys.exit(f"check-dist: exit code {result.returncode}: {' '.join(map(str, words))}\n{result.stdout}")
    return result.stdout


def check(condition: bool, what: str) -> None:
    print(f"{'ok' if condition else 'FAILED'}: {what}", flush=True)
    if not condition:
        sys.exit(1)


def try_command(command: Path, cwd: Path) -> None:
    """Each helper and library of the package does something once."""
    version = run(command, "--version", cwd=cwd)
    check("blkreel, version" in version, version.strip())
    check("I/Os" in run(command, "info", "sample:game-load", cwd=cwd), "info of a sample trace")
    run(command, "replay", "sample:game-load", "--on", "nil:2GiB", "-o", "run", "--pace", "asap", "--force", cwd=cwd,
        expected=(0, NOT_TRUSTWORTHY))
    check((cwd / "run/records.parquet").is_file(), "replay without a drive")
    run(command, "report", "run", "-o", "run.html", "--force", cwd=cwd)
    check((cwd / "run.html").stat().st_size > 500_000, "report with its chart library")
    if os.geteuid() == 0 and Path("/sys/kernel/btf/vmlinux").exists():
        python = command.resolve().with_name("python")
        kind = run(python, "-I", "-c", "from blkreel.capture import helper; print(helper.probe()['programs'])", cwd=cwd)
        check(kind.strip() in ("tp_btf", "raw_tp"), f"BPF programs load: {kind.strip()}")
    else:
        print("skipped: BPF programs need root and a kernel with BTF")


def check_wheel(wheel: Path, directory: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    check(any(name.endswith("/LICENSE") for name in names), "the wheel has the license")
    for name in ("capture/blkreel-capture", "replay/engine/blkreel-replay", "replay/emulated/blkreel-emulate",
                 "replay/run/blkreel-turnaround", "analysis/report/html/vega.js"):
        check(f"blkreel/{name}" in names, f"the wheel has {name}")
    run(sys.executable, "-m", "venv", directory / "venv", cwd=directory)
    run(directory / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check",
        "-c", ROOT / "constraints.txt", wheel, cwd=directory)
    try_command(directory / "venv/bin/blkreel", directory)


def check_oldest(directory: Path) -> None:
    """With the oldest versions that the project allows, which have wheels for the oldest Python only."""
    if sys.version_info[:2] > (3, 11):
        print("skipped: the oldest versions of dependencies need Python 3.11")
        return
    oldest = [requirement.replace(">=", "==") for requirement in
              tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]]
    run(directory / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", *oldest, cwd=directory)
    print(f"with {', '.join(oldest)}:")
    try_command(directory / "venv/bin/blkreel", directory)


def check_archive(archive: Path, wheel: Path, directory: Path) -> None:
    """Built outside the checkout, with the build requirements of pyproject.toml."""
    run(directory / "venv/bin/pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--wheel-dir", directory / "built", archive, cwd=directory)
    built, expected = (set(zipfile.ZipFile(path).namelist()) for path in (only(directory / "built", "*.whl"), wheel))
    check(built == expected, f"the archive builds the same {len(expected)} files"
          + "".join(f"\n  only in one: {name}" for name in sorted(built ^ expected)))


def check_install(wheel: Path, directory: Path) -> None:
    prefix = directory / "prefix"
    (prefix / "share").mkdir(parents=True)
    (prefix / "share/of-others").write_text("stays\n")
    installer: list[str | Path] = [sys.executable, ROOT / "packaging/install.py", "--prefix", prefix]
    run(*installer, "install", wheel, cwd=directory)
    try_command(prefix / "bin/blkreel", directory / "venv")
    for name in ("man/man1/blkreel.1", "man/man1/blkreel-replay.1", "bash-completion/completions/blkreel",
                 "zsh/site-functions/_blkreel", "fish/vendor_completions.d/blkreel.fish"):
        check((prefix / "share" / name).is_file(), f"share/{name}")
    run(*installer, "uninstall", cwd=directory)
    left = [path for path in prefix.rglob("*") if not path.is_dir()]
    check(left == [prefix / "share/of-others"], "uninstalling removes all files, and no others")


def main() -> None:
    dist = Path(sys.argv[1])
    wheel, archive = only(dist, "blkreel-*.whl"), only(dist, "blkreel-*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="blkreel-check-") as name:
        directory = Path(name)
        check_wheel(wheel, directory)
        check_archive(archive, wheel, directory)
        check_install(wheel, directory)
        check_oldest(directory)


if __name__ == "__main__":
    main()
