"""The Makefile in a directory whose path holds a space."""

import re
import shlex
import shutil
import subprocess
import sys

import pytest
from tree import TREE


@pytest.fixture
def make(tmp_path):
    directory = tmp_path / "a b"
    directory.mkdir()
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(TREE / name, directory)
    return lambda *words: subprocess.run(["make", "--no-print-directory", *words], cwd=directory, check=True,
                                         capture_output=True, text=True).stdout


def test_a_path_with_a_space_is_one_word_of_each_command(make):
    for target in ("install", "demo", "samples", "lab", "bench"):
        # A line of make may go on in the next one.
        commands = make("-n", target, "PREFIX=/p q", "DESTDIR=/d d").replace("\\\n", " ").splitlines()
        named = [shlex.split(line) for line in commands if re.search("/(a b|p q|d d)", line)]
        assert named and not [words for words in named if any(re.search("/[apd]$", word) for word in words)]


def test_help_lists_the_targets(make):
    listed = set(re.findall(r"make ([a-z-]+)", make("help")))
    assert {"demo", "test", "install", "uninstall", "check-dist", "check-deb", "lint", "clean", "help"} <= listed


def test_a_prefix_with_a_space_is_refused(tmp_path):
    """The kernel would take half of it as the interpreter."""
    result = subprocess.run([sys.executable, TREE / "packaging/install.py", "--prefix", tmp_path / "p q", "install",
                             "x.whl"], capture_output=True, text=True)
    assert result.returncode == 2 and "has a space" in result.stderr and list(tmp_path.iterdir()) == []
