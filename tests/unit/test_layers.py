"""The tree keeps its shape: imports go one way, without circles, and every module is installed."""

import ast
import importlib.util
import sysconfig
from functools import cache
from itertools import takewhile
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
# Folders of a package from the highest down: a folder imports only folders after it. A subfolder has the rank of its
# folder, and both may import each other.
RANKS = {
    "replay": ("predict", "run", "background", "prepare", "fidelity", "streams", "plan", "telemetry", "engine",
               "emulated", "drive", "simulated"),
    "analysis": ("report", "compare", "scale", "charts", "stats", "frames", "metrics"),
    "traces": ("importers", "model", "exporters", "transform", "spool", "telemetry", "format", "samples", "blocksets"),
    "benchmarks": ("site", "history", "catalog", "runner", "reports", "charts", "results", "step_metrics", "recipe"),
}
MOST_FILES = 15
CROWDED = {"capture/bpf"}  # over the limit: each file has one subject of the kernel side


def modules(package):
    return sorted((TREE / package).rglob("*.py"))


@cache
def parsed(path):
    return ast.parse(path.read_text())


def module_file(names):
    """The file of a module, or of the package that the names lead into."""
    path = TREE.joinpath(*names)
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"


@cache
def imported_files(path):
    """The files of the tree that a file imports, at its start or later."""
    files = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            files |= {module_file(alias.name.split(".")[1:]) for alias in node.names
                      if alias.name.startswith("blkreel.")}
        elif isinstance(node, ast.ImportFrom):
            names = list(path.parent.relative_to(TREE).parts) if node.level else []
            if not node.level:
                if (node.module or "").split(".")[0] != "blkreel":
                    continue
                names = node.module.split(".")[1:]
            elif node.module:
                names += node.module.split(".")
            for alias in node.names:
                submodule = module_file([*names, alias.name])
                files.add(submodule if submodule.is_file() else module_file(names))
    return {file for file in files if file.is_file() and file != path}


def package_of(path):
    return path.relative_to(TREE).parts[0]


def circles(edges):
    """Sets of nodes that reach each other (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            members = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(members) > 1:
                found.append(sorted(map(str, members)))

    for node in edges:
        if node not in index:
            visit(node)
    return found


ALL = [path for package in MAY_IMPORT for path in modules(package)]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_packages_below_it(package):
    for path in modules(package):
        others = {package_of(other) for other in imported_files(path)} & set(MAY_IMPORT) - {package}
        assert others <= MAY_IMPORT[package], f"{path.relative_to(TREE)} imports {others - MAY_IMPORT[package]}"


@pytest.mark.parametrize("package", RANKS)
def test_a_folder_imports_only_folders_below_it(package):
    """A new folder needs a rank."""
    rank = {folder: number for number, folder in enumerate(RANKS[package])}
    for path in modules(package):
        folder = path.relative_to(TREE / package).parts[0]
        if folder.endswith(".py"):
            continue  # beside the folders: the interface of the package
        for other in imported_files(path):
            parts = other.relative_to(TREE).parts
            if parts[0] == package and len(parts) > 2:
                assert rank[folder] <= rank[parts[1]], f"{path.relative_to(TREE)} imports {other.relative_to(TREE)}"


def test_files_import_each_other_in_no_circle():
    """A package's __init__.py is left out: importing it is part of importing any of its modules."""
    edges = {path: [other for other in imported_files(path) if other.name != "__init__.py"]
             for path in ALL if path.name != "__init__.py"}
    assert not circles(edges)


def test_folders_import_each_other_in_no_circle():
    """At each depth. A folder and its own subfolders count as one, and both may import each other."""
    edges = {}
    for path in ALL:
        for other in imported_files(path):
            folders, others = path.parent.relative_to(TREE).parts, other.parent.relative_to(TREE).parts
            pairs = zip(folders, others, strict=False)
            shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
            if shared < min(len(folders), len(others)):
                edges.setdefault(folders[:shared + 1], set()).add(others[:shared + 1])
    assert not circles(edges)


@pytest.mark.parametrize("top", [*MAY_IMPORT, "samples", "tests/unit/cli", "tests/unit/traces"])
def test_a_folder_holds_few_files(top):
    """A .c file and its .h file count as one."""
    files = {}
    for path in (TREE / top).rglob("*"):
        if path.suffix in (".py", ".c", ".h") and path.name != "__init__.py":
            files.setdefault(path.parent.relative_to(TREE).as_posix(), set()).add(path.stem)
    crowded = {folder for folder, stems in files.items() if len(stems) > MOST_FILES}
    assert crowded <= CROWDED, "join files with one subject, or add a folder"


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_relative_imports_stay_in_their_folder(package):
    """So that a reader sees from each import which package it crosses into."""
    for path in modules(package):
        for node in ast.walk(parsed(path)):
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
