"""Colors, font and logo of an editor's own, in pages and pictures."""

import struct

import pytest
from synthetic_pages import made

from blkreel.analysis.charts.theme import COLORS
from blkreel.analysis.report import export
from blkreel.analysis.report.html.rendering import render_page
from blkreel.analysis.report.page import brand
from blkreel.common.errors import UsageError

pytestmark = pytest.mark.usefixtures("no_pictures")
LOGO = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 300 100"><rect width="300" height="100"/></svg>'
THEME = """
font = "Liberation Serif"
logo = "logo.svg"
[light]
accent = "#123456"
category = ["#111111", "#222222"]
[dark]
accent = "#abcdef"
"""


@pytest.fixture
def theme(tmp_path):
    (tmp_path / "logo.svg").write_text(LOGO)
    path = tmp_path / "brand.toml"
    path.write_text(THEME)
    return path


def test_page_and_pictures_have_colors_font_and_logo(theme, tmp_path):
    own = brand.load(theme)
    assert own.palette("light") == {**COLORS["light"], "accent": "#123456", "category": ["#111111", "#222222"]}
    assert own.logo_size == (84, 28)
    page = made(3, paces=1, steps=20)
    view = export.View("html", brand=own)
    view.write({}, lambda: page, tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    assert "--accent: #123456" in html and "--accent: #abcdef" in html and "'Liberation Serif'" in html
    assert '<img class="logo" src="data:image/svg+xml;base64,' in html
    export.View("svg", "s0-wait", brand=own).write({}, lambda: page, tmp_path / "wait.svg")
    picture = (tmp_path / "wait.svg").read_text()
    assert "<image" in picture and "Liberation Serif" in picture and "#123456" in picture
    assert "<image" not in export.picture(page.sections[0].charts[0], page, "svg")
    assert '"logo"' not in render_page(page)


@pytest.mark.parametrize(("text", "words"), [
    ("color = 1", "unknown key 'color'"),
    ("[light]\naccent = 'red'", "is not a color"),
    ("[light]\naccents = '#123456'", "no color 'accents'"),
    ("[light]\ncategory = ['#123456']", "fewer than 2"),
    ("font = \"a'; } body { display: none\"", "not the name of a font"),
    ("logo = 'logo.gif'", "neither .svg nor .png"),
    ("logo = 'gone.svg'", "No such file"),
    ("light = 3", "not a table"),
    ("light =", "Invalid value"),
])
def test_what_a_theme_file_may_not_hold_is_an_error_with_its_key(tmp_path, text, words):
    path = tmp_path / "brand.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        brand.load(path)


@pytest.mark.parametrize(("width", "scale", "pixels"), [(700, 1, 700), (900, 2, 1800)])
def test_a_picture_has_the_width_that_was_asked_for(tmp_path, width, scale, pixels):
    page = made(3, paces=1, steps=20)
    export.View("png", "s0-wait", width=width, scale=scale).write({}, lambda: page, tmp_path / "wait.png")
    (own,) = struct.unpack(">I", (tmp_path / "wait.png").read_bytes()[16:20])
    assert own == pytest.approx(pixels, abs=2 * scale)
