"""JSON documents: without NaN, and in files that appear under their name only when complete."""

import json
import math
import sys
from pathlib import Path
from typing import Any

from .safe_files import write_file


def write_json(path: Path, document: Any, *, indent: int | None = 1, **options: Any) -> None:
    """options: see safe_files.NewFile. Raises OSError and leaves an existing file unchanged."""
    write_file(path, json.dumps(finite(document), indent=indent) + "\n", force=True, **options)


def finite(document: Any) -> Any:
    """The document with null in place of NaN and infinity, which JSON cannot express; the same object without any."""
    if isinstance(document, float):
        return document if math.isfinite(document) else None
    if isinstance(document, dict):
        changed = {key: new for key, value in document.items() if (new := finite(value)) is not value}
        return {**document, **changed} if changed else document
    if isinstance(document, list | tuple):
        elements = [finite(element) for element in document]
        return elements if any(new is not old for new, old in zip(elements, document, strict=True)) else document
    return document


def print_json(document: Any, indent: int | None = None) -> None:
    # In pieces: the text of a trace of months would need more memory than its metrics.
    sys.stdout.writelines(json.JSONEncoder(indent=indent, allow_nan=False).iterencode(finite(document)))
    sys.stdout.write("\n")
    sys.stdout.flush()
