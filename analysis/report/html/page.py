"""The HTML page of charts: one file that needs nothing else."""

from pathlib import Path

from blkreel.analysis.charts import model
from blkreel.common.files.output_lock import write_output
from blkreel.traces.format.writer import output_errors, refuse_output

from . import rendering


def render_page(page: model.Page, assets: rendering.Assets | None = None) -> str:
    """The page as HTML; without assets self-contained: it loads no other file."""
    return rendering.render(page, assets)


def write_page(path: Path, html: str, force: bool = False) -> Path:
    """Write the page atomically. Raises OutputExists."""
    path = Path(path)
    refuse_output(path, force)
    with output_errors(path):
        write_output(path, html, force=force)
    return path
