"""Path of this checkout."""

from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
