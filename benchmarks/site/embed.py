"""A chart of a site as files for an article: page, pictures, specification, table, caption and alternative text."""

import json
from collections.abc import Callable

from markupsafe import Markup

from blkreel.analysis.charts import model
from blkreel.analysis.report.export import as_csv, only, picture, standing_alone
from blkreel.analysis.report.html import cells
from blkreel.analysis.report.html.static_chart import static_svg, tokens, vega

_MOST_DRIVES = 20  # of the pictures; the tables have all
# suffix of the file -> what it is
_PICTURE_FORMS = {
    ".html": "page with picture and table, self-contained", ".svg": "picture, SVG", ".png": "picture, PNG",
    "@2x.png": "picture, PNG at twice the size", ".vl.json": "Vega-Lite specification",
    ".txt": "caption and alternative text",
}
_TABLE_FORMS = {".csv": "table, CSV", ".table.html": "table, HTML"}


def forms_of(chart: model.Chart) -> dict[str, str]:
    """Suffix -> what it is. A chart without a picture has only the forms of its table."""
    return {**_PICTURE_FORMS, **_TABLE_FORMS} if chart.spec else _TABLE_FORMS


def files_of(page: model.Page, chart: model.Chart) -> Callable[[], dict[str, bytes]]:
    """Suffix of forms_of -> content, made when it is called. page: of a site, with this chart."""
    def make() -> dict[str, bytes]:
        table_files = {".csv": as_csv(chart.table).encode(), ".table.html": table_html(chart.table).encode()}
        if not chart.spec:
            return table_files
        converter = vega()
        best = {row.entry for row in chart.table.rows[:_MOST_DRIVES] if row.entry}
        drawn = only(page, best) if len(chart.table.rows) > _MOST_DRIVES else page
        own = next(drawn_chart for section in drawn.sections for drawn_chart in section.charts
                   if drawn_chart.id == chart.id)
        svg = picture(own, drawn, "svg")
        assert isinstance(svg, str)
        description = (own.spec or {}).get("description") or own.title
        caption = " ".join((f"{page.title}: {own.title}.", own.text, *own.notes)).strip()
        files: dict[str, str | bytes] = {
            ".html": _page(own, drawn, caption), ".svg": svg, ".png": converter.svg_to_png(svg, scale=1.0),
            "@2x.png": converter.svg_to_png(svg, scale=2.0),
            ".vl.json": json.dumps(standing_alone(own, drawn), indent=1) + "\n",
            ".txt": f"Caption: {caption}\nAlternative text: {description}\n",
        }
        return {**table_files, **{suffix: content.encode() if isinstance(content, str) else content
                                  for suffix, content in files.items()}}
    return make


def table_html(table: model.Table) -> str:
    """The table without styles and links, for a content management system."""
    heads = cells.heads(table)
    titles = Markup("").join(Markup("<th scope=\"col\">{}</th>").format(
        f"{head.column.title} ({head.unit})" if head.unit else head.column.title) for head in heads)
    rows = Markup("\n").join(Markup("<tr>{}</tr>").format(Markup("").join(
        Markup("<td>{}</td>").format(cells.cell(head, row).text or "–") for head in heads)) for row in table.rows)
    return str(Markup("<table>\n<caption>{}</caption>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}\n</tbody>\n</table>\n"
                      ).format(table.caption, titles, rows))


def _page(chart: model.Chart, page: model.Page, caption: str) -> str:
    """A page with the picture and the table, without scripts."""
    light, dark = (Markup(" ").join(Markup("--{}: {};").format(*item) for item in
                                    tokens(page.brand.palette(theme)).items()) for theme in ("light", "dark"))
    return str(Markup("""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
:root {{ {light} }}
@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}
body {{ background: var(--page); color: var(--text); font: 15px/1.4 system-ui, sans-serif; margin: 16px; }}
svg {{ max-width: 100%; height: auto; }} figure {{ margin: 0; }} table {{ border-collapse: collapse; }}
th, td {{ padding: 4px 12px 4px 0; text-align: left; }} details {{ overflow-x: auto; }}
</style>
<figure>
<div role="img" aria-label="{description}">{picture}</div>
<figcaption>{caption}</figcaption>
<details><summary>Table</summary>
{table}</details>
</figure>
</html>
""").format(title=page.title, light=light, dark=dark, description=(chart.spec or {}).get("description", chart.title),
            picture=Markup(static_svg(chart, page)), caption=caption, table=Markup(table_html(chart.table))))
