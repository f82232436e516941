"""Colors of pages and charts can be told from what lies behind them (WCAG 2.1, AA)."""

import pytest

from blkreel.analysis.charts.theme import COLORS, INKS, NO_BRAND

TEXTS = [("text", "page"), ("muted", "page"), ("link", "page"), ("text", "soft"), ("muted", "soft"), ("link", "soft"),
         ("text", "marked"), ("muted", "marked"), ("link", "marked"), ("good", "good_back"), ("mild", "mild_back"),
         ("bad", "bad_back"), ("bad", "page"), ("page", "text"), ("accent", "page"), ("near", "page")]
MARKS = ["accent", "near", "plain", "read", "text", "muted"]


def luminance(color):
    parts = [int(color[start:start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_of_known_colors():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


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
