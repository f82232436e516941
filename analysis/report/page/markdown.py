"""A page as Markdown in GitHub's style: tables with units, verdicts, notes; for issues, wikis and articles."""

from typing import Any

from blkreel.analysis.charts import model
from blkreel.analysis.report.html import cells

MOST_ROWS = 100  # of a table in a whole page; alone it has all of them
_SIGNS = {"valid": "✓ valid", "qualified": "! qualified", "invalid": "✕ invalid"}


def of_page(page: model.Page) -> str:
    """The whole page: its drives and their verdicts, each table, parameters and decisions."""
    parts = [f"# {_escaped(page.title)}", _escaped(page.lead), *(f"> {_escaped(text)}" for text in page.notices)]
    parts.append(_drives(page))
    for section in page.sections:
        parts += [f"## {_escaped(section.title)}", *(_escaped(text) for text in section.lead)]
        parts += [of_chart(chart, 3, MOST_ROWS).strip() for chart in section.charts]
    if page.parameters or page.decisions:
        parts.append("## Method")
    parts += ["\n".join(f"- **{_escaped(name)}**: {_escaped(text)}" for name, text in pairs)
              for pairs in (page.parameters, page.decisions)]
    return "\n\n".join(part for part in parts if part) + "\n"


def of_chart(chart: model.Chart, level: int = 2, most_rows: int | None = None) -> str:
    """Title, text, table and notes. For a table of more than most_rows rows, the command that prints it."""
    better = f" ({chart.better} is better)" if chart.better else ""
    whole = most_rows is None or len(chart.table.rows) <= most_rows
    rows = table(chart.table) if whole else (
        f"{len(chart.table.rows):,} rows: `--format csv --chart {chart.id}`")
    parts = [f"{'#' * level} {_escaped(chart.title)}{better}", _escaped(chart.text), rows,
             "\n".join(f"- {_escaped(note)}" for note in chart.notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(table: model.Table) -> str:
    """Caption and rows; groups become a first column. Columns without any value are left out."""
    heads = [head for head in cells.heads(table) if any(
        cells.cell(head, row).text or cells.cell(head, row).note for row in table.rows)]
    grouped = any(row.group for row in table.rows)
    names = [*([""] if grouped else []), *(f"{head.column.title}{f', {head.unit}' if head.unit else ''}"
                                           for head in heads)]
    right = [*([False] if grouped else []), *(head.is_number for head in heads)]
    lines = [names, ["---:" if number else "---" for number in right]]
    for group, rows in cells.groups(table):
        lines += [[*([_escaped(group)] if grouped else []), *(_cell(head, row) for head in heads)] for row in rows]
    text = "\n".join("| " + " | ".join([_escaped(text_of) for text_of in line] if index == 0 else line) + " |"
                     for index, line in enumerate(lines))
    return f"{_escaped(table.caption)}\n\n{text}" if table.caption else text


def _cell(head: cells.Head, row: model.Row) -> str:
    cell = cells.cell(head, row)
    if head.column.format == "verdict":
        return _SIGNS.get(cell.text, cell.text)
    if cell.text and cell.note:
        return f"{_escaped(cell.text)} ({_escaped(cell.note)})"
    return _escaped(cell.text or cell.note or "–")


def _drives(page: model.Page) -> str:
    lines = []
    for entry in page.entries:
        facts = ", ".join(f"{name} {cells.fact_words(value)}" for name, value in entry.facts.items()
                          if value not in (None, ""))
        reasons = "; ".join(reason["text"] for reason in entry.verdict.get("reasons", []))
        mark = " (highlighted)" if entry.highlighted else ""
        level = _SIGNS.get(entry.verdict["level"], entry.verdict["level"])
        lines.append(f"- **{_escaped(entry.key)}**{mark}: {level}{f': {_escaped(reasons)}' if reasons else ''}"
                     f"{f'. {_escaped(facts)}' if facts else ''}")
    return "\n".join(lines)


def _escaped(text: Any) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").replace("*", "\\*")
