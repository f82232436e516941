"""Colors of pages and charts: readable on what is behind them (WCAG 2.1, AA); font and logo of an editor's own."""

import pytest
from synthetic_pages import made

from blkreel.analysis.charts.theme import COLORS, INKS, NO_BRAND
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
TEXTS = [("text", "page"), ("muted", "page"), ("link", "page"), ("text", "soft"), ("muted", "soft"), ("link", "soft"),
         ("text", "marked"), ("muted", "marked"), ("link", "marked"), ("good", "good_back"), ("mild", "mild_back"),
         ("bad", "bad_back"), ("bad", "page"), ("page", "text"), ("accent", "page"), ("near", "page")]
MARKS = ["accent", "near", "plain", "read", "text", "muted"]


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


def luminance(color):
    parts = [int(color[start:start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", COLORS)
@pytest.mark.parametrize(("front", "back", "least"), [*((*pair, 4.5) for pair in TEXTS),
                                                      *((mark, "page", 3) for mark in MARKS)])
def test_texts_and_marks_stand_out(theme, front, back, least):
    assert contrast(COLORS[theme][front], COLORS[theme][back]) >= least


@pytest.mark.parametrize("theme", COLORS)
def test_the_highlight_stands_out_from_what_stands_back(theme):
    colors = COLORS[theme]
    # Told by brightness too, for those who see no hues.
    assert contrast(colors["accent"], colors["other"]) >= 1.8
    categories = {f"category_{index}" for index in range(len(colors["category"]))}
    assert {param["name"] for param in NO_BRAND.config(theme)["params"]} == {*INKS, *categories}
