"""The HTML page of a report or a comparison: one file that needs nothing else."""

import json
import os
import re
from functools import cache
from pathlib import Path

import altair
import jinja2
import vl_convert

from blkreel.traces.writer import output_error, publish, refuse_existing

from . import columns, numbers, rendering
from .exhibits import model
from .theme import COLOURS, THEMES

_TEMPLATES = Path(__file__).with_name("templates")


def render_page(page: model.Page) -> str:
    """The page as HTML: everything it needs is inside, and nothing is loaded from anywhere."""
    return rendering.render(page)


class Drawing:
    """The charts of a page: `add` gives the id under which the page draws a specification."""

    def __init__(self):
        self.specs = {}

    def add(self, name: str, spec: dict | None) -> str | None:
        if spec is None:
            return None
        self.specs[name] = spec
        return name


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


def render(template: str, drawing: Drawing, **context) -> str:
    """A template with the page's styles, its chart library and these charts."""
    return _environment().get_template(template).render(
        colours=COLOURS,
        styles=(_TEMPLATES / "page.css").read_text(), program=(_TEMPLATES / "page.js").read_text(),
        library=_library(), drawing=_script_json({"specs": drawing.specs, "themes": THEMES}), **context)


@cache
def _environment():
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True,
                                     lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"duration": numbers.duration, "digits": numbers.digits, "size": numbers.size,
                            "drive_words": columns.drive_words, "state_words": columns.state_words,
                            "idle_words": columns.idle_words}
    return environment


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed, of the version that Altair writes for."""
    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    # Nothing in it may end the script element it stands in; other "</" are parts of regular expressions.
    return re.sub(r"</(?=script)", r"<\\/", vl_convert.javascript_bundle(vl_version=version), flags=re.IGNORECASE)


def _script_json(value) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
