"""The tree keeps its shape: which package imports which, and that every module is installed."""

import ast
import importlib.util
import sysconfig
from pathlib import Path

import pytest
from tree import TREE

MAY_IMPORT = {
    "common": set(),
    "traces": {"common"},
    "capture": {"common", "traces"},
    "replay": {"common", "traces"},
    "analysis": {"common", "traces"},
    "benchmarks": {"common", "traces", "capture", "replay", "analysis"},
    "cli": {"common", "traces", "capture", "replay", "analysis", "benchmarks"},
}
# Scripts that record the sample traces: users of the package, not parts of it.
SCRIPTS = TREE / "traces/samples/make"


def modules(package):
    return [path for path in sorted((TREE / package).rglob("*.py")) if not path.is_relative_to(SCRIPTS)]


def imported_packages(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "blkreel" and len(parts) > 1 and parts[1] in MAY_IMPORT:
                yield parts[1]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_packages_below_it(package):
    for path in modules(package):
        others = set(imported_packages(path)) - {package}
        assert others <= MAY_IMPORT[package], f"{path.relative_to(TREE)} imports {others - MAY_IMPORT[package]}"


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_relative_imports_stay_in_their_folder(package):
    """So that a reader sees from each import which package it crosses into."""
    for path in modules(package):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level <= 1, f"{path.relative_to(TREE)}:{node.lineno}"


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_every_module_is_installed(package):
    """A file that is not installed works in a checkout and is missing for the user."""
    installed = Path(importlib.util.find_spec("blkreel").origin).parent
    assert sysconfig.get_paths()["platlib"] in str(installed)
    missing = [path for path in modules(package) if not (installed / path.relative_to(TREE)).is_file()]
    assert not missing


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_folders_are_packages(package):
    """A folder without __init__.py is installed and imported all the same, until a tool looks for packages."""
    for path in modules(package):
        assert (path.parent / "__init__.py").is_file(), path.parent


def test_no_folder_shadows_the_installed_package():
    assert not (TREE / "blkreel").exists()
