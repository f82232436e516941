"""A static site of a catalog: `blkreel results site` (docs/catalog.md)."""

from .build import Built, build

__all__ = ["Built", "build"]
