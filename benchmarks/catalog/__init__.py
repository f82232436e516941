"""A catalog of results: a directory of immutable files, one for each run or test (docs/catalog.md)."""

from .catalog import Catalog
from .collect import collected
from .result import Result

__all__ = ["Catalog", "Result", "collected"]
