"""JSON documents that appear under their name only when whole."""

import json
import os
from pathlib import Path


def write_json(path: Path, document) -> None:
    """Raises OSError; what was there before stays then."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(document, indent=1) + "\n")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
