"""The house keeps its shape: who imports whom, and that every tracked file is installed."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAY_IMPORT = {"traces": set(), "capture": {"traces"}, "replay": {"traces"}, "analysis": {"traces"},
              "cli": {"traces", "capture", "replay", "analysis"}}


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
def test_a_package_imports_only_what_lies_below_it(package):
    for path in (ROOT / package).rglob("*.py"):
        if path.is_relative_to(ROOT / "traces/samples"):
            continue  # scripts that record what ships: users of the package, not parts of it
        others = set(imported_packages(path)) - {package}
        assert others <= MAY_IMPORT[package], f"{path.relative_to(ROOT)} imports {others - MAY_IMPORT[package]}"


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_every_module_is_installed(package):
    """A file that meson does not list works in a checkout and is missing for the user."""
    listed = set(re.findall(r"'([\w/.-]+\.py)'", (ROOT / package / "meson.build").read_text()))
    present = {str(path.relative_to(ROOT / package)) for path in (ROOT / package).rglob("*.py")
               if not path.is_relative_to(ROOT / "traces/samples")}
    assert listed == present


def test_no_package_directory_shadows_the_installed_one():
    assert not (ROOT / "blkreel").exists()
