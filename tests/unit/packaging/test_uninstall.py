"""Uninstalling removes what the manifest lists, and nothing else."""

import os
import subprocess
import sys

import pytest
from tree import TREE, load_script


@pytest.fixture
def prefix(tmp_path):
    prefix = tmp_path / "prefix"
    for name in ("lib/blkreel/bin/blkreel", "share/man/man1/blkreel.1", "share/man/man1/other.1"):
        (prefix / name).parent.mkdir(parents=True, exist_ok=True)
        (prefix / name).touch()
    (prefix / "bin").mkdir()
    (prefix / "bin/blkreel").symlink_to("../lib/blkreel/bin/blkreel")
    return prefix


def uninstall(prefix, destdir=""):
    return subprocess.run([sys.executable, TREE / "packaging/install.py", "--prefix", prefix, "--destdir", destdir,
                           "uninstall"], capture_output=True, text=True)


@pytest.mark.parametrize("staged", [False, True])
def test_removes_the_listed_files_only(prefix, tmp_path, staged):
    used = tmp_path / "elsewhere" if staged else prefix
    if staged:
        (tmp_path / "destdir" / used.relative_to("/")).parent.mkdir(parents=True)
        prefix = prefix.rename(tmp_path / "destdir" / used.relative_to("/"))
    (prefix / "lib/blkreel/installed-files").write_text(f"{used}/bin/blkreel\n{used}/share/man/man1/blkreel.1\n")
    assert uninstall(used, tmp_path / "destdir" if staged else "").returncode == 0
    assert [path.name for path in prefix.rglob("*") if not path.is_dir()] == ["other.1"]
    assert "not installed" in uninstall(used, tmp_path / "destdir" if staged else "").stdout


def test_refuses_a_directory_that_is_no_installation(prefix):
    result = uninstall(prefix)
    assert result.returncode == 1 and "not an installation of blkreel" in result.stderr
    assert (prefix / "lib/blkreel/bin/blkreel").exists()


def test_an_installation_that_fails_can_be_removed(tmp_path, monkeypatch):
    """It left the man pages, the completion and the unit, which no manifest listed."""
    install = load_script("packaging/install.py")
    (tmp_path / "bin").touch()  # so that the command cannot be made
    installation = install.Installation(tmp_path, "")

    def make_environment(environment, wheel):
        environment.mkdir(parents=True)
        (environment / install.MANIFEST).touch()

    def write_man_pages(environment, directory):
        (directory / "blkreel.1").touch()
        return ["blkreel.1"]

    monkeypatch.setattr(installation, "_make_environment", make_environment)
    monkeypatch.setattr(installation, "_write_man_pages", write_man_pages)
    mask = os.umask(0o077)  # of root on some machines
    try:
        with pytest.raises(OSError):
            installation.install(tmp_path / "wheel")
    finally:
        os.umask(mask)
    assert (tmp_path / "share/man/man1/blkreel.1").stat().st_mode & 0o777 == 0o644, "for all users"
    installation.uninstall()
    assert [path.name for path in tmp_path.rglob("*") if not path.is_dir()] == ["bin"]


def test_a_command_of_another_installation_is_not_replaced(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/blkreel").write_text("of pip")
    result = subprocess.run([sys.executable, TREE / "packaging/install.py", "--prefix", tmp_path, "install", "wheel"],
                            capture_output=True, text=True)
    assert result.returncode == 1 and "bin/blkreel: it exists, and is of another installation" in result.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["bin", "blkreel"]
