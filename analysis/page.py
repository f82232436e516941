"""The HTML page of exhibits: one file that needs nothing else."""

import os
from pathlib import Path

from blkreel.traces.writer import output_error, publish, refuse_existing

from . import rendering
from .exhibits import model


def render_page(page: model.Page) -> str:
    """The page as HTML: everything it needs is inside, and nothing is loaded from anywhere."""
    return rendering.render(page)


def write_page(path: Path, html: str, force: bool = False) -> Path:
    """Write the page; it stands under `path` only when it is whole. Raises OutputExists."""
    path = Path(path)
    refuse_existing(path, force)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(html, encoding="utf-8")
        publish(temporary, path, force)
    except OSError as error:
        raise output_error(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    return path
