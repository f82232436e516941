"""Refuse names in Python code that do not say what they hold: python tests/check_names.py FOLDER..."""

import ast
import sys
from pathlib import Path

REFUSED = {"each", "it", "shown", "told"}
errors = []
for path in (path for folder in sys.argv[1:] for path in sorted(Path(folder).rglob("*.py"))):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(getattr(node, "ctx", None), ast.Store) or isinstance(node, (ast.arg, ast.FunctionDef)):
            for name in REFUSED & {getattr(node, field, None) for field in ("id", "attr", "arg", "name")}:
                errors.append(f"{path}:{node.lineno}: {name!r} does not say what it holds: use a noun")
sys.exit("\n".join(errors) or 0)
