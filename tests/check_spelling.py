"""Refuse British spellings in texts, names and pages: python tests/check_spelling.py FILE_OR_FOLDER..."""

import re
import sys
from pathlib import Path

SUFFIXES = {".c", ".css", ".h", ".j2", ".js", ".md", ".py", ".toml"}
# The American form of each. `cancelled` is a state of concurrent.futures.
BRITISH = {"behaviour": "behavior", "catalogue": "catalog", "centre": "center", "centred": "centered",
           "colour": "color", "favour": "favor", "grey": "gray", "labelled": "labeled", "licence": "license",
           "modelled": "modeled", "neighbour": "neighbor"}
WORD = re.compile(rf"(?<![a-z])({'|'.join(sorted(BRITISH, key=len, reverse=True))})(?=s?(?![a-z])|ing|ed|able)", re.I)

files = [file for path in map(Path, sys.argv[1:])
         for file in ([path] if path.is_file() else sorted(path.rglob("*"))) if file.suffix in SUFFIXES]
errors = [f"{file}:{number}: {match[0]}: write {BRITISH[match[0].lower()]}"
          for file in files if file != Path("tests/check_spelling.py")
          for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
          for match in WORD.finditer(line)]
sys.exit("\n".join(errors) or 0)
