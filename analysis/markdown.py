"""A page as Markdown in GitHub's style: tables with units, verdicts, notes; for issues, wikis and articles."""

from . import cells
from .exhibits import model

MOST_ROWS = 100  # of a table in a whole page; alone it has all of them
_SIGNS = {"valid": "✓ valid", "qualified": "! qualified", "invalid": "✕ invalid"}


def of_page(page: model.Page) -> str:
    """The whole page: its drives and their verdicts, each table, parameters and decisions."""
    parts = [f"# {_escaped(page.title)}", _escaped(page.lead), *(f"> {_escaped(text)}" for text in page.notices)]
    parts.append(_drives(page))
    for section in page.sections:
        parts += [f"## {_escaped(section.title)}", *(_escaped(text) for text in section.lead)]
        parts += [of_exhibit(exhibit, 3, MOST_ROWS).strip() for exhibit in section.exhibits]
    if page.parameters or page.decisions:
        parts.append("## Method")
    if page.parameters:
        parts.append("\n".join(f"- **{_escaped(name)}**: {_escaped(text)}" for name, text in page.parameters))
    if page.decisions:
        parts.append("\n".join(f"- **{_escaped(name)}**: {_escaped(text)}" for name, text in page.decisions))
    return "\n\n".join(part for part in parts if part) + "\n"


def of_exhibit(exhibit: model.Exhibit, level: int = 2, most_rows: int | None = None) -> str:
    """Title, what is said of it, its table, its notes. A table of more than most_rows is named instead."""
    better = f" ({exhibit.better} is better)" if exhibit.better else ""
    whole = most_rows is None or len(exhibit.table.rows) <= most_rows
    rows = table(exhibit.table) if whole else (
        f"{len(exhibit.table.rows):,} rows: `--format csv --chart {exhibit.id}`")
    parts = [f"{'#' * level} {_escaped(exhibit.title)}{better}", _escaped(exhibit.text), rows,
             "\n".join(f"- {_escaped(note)}" for note in exhibit.notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(told: model.Table) -> str:
    """Its caption and rows; a group that stands over rows is a first column. Columns without any value are left out."""
    heads = [head for head in cells.heads(told) if any(
        cells.cell(head, row).text or cells.cell(head, row).note for row in told.rows)]
    grouped = any(row.group for row in told.rows)
    names = [*([""] if grouped else []), *(f"{head.column.title}{f', {head.unit}' if head.unit else ''}"
                                           for head in heads)]
    right = [*([False] if grouped else []), *(head.is_number for head in heads)]
    lines = [names, ["---:" if number else "---" for number in right]]
    for group, rows in cells.groups(told):
        lines += [[*([_escaped(group)] if grouped else []), *(_cell(head, row) for head in heads)] for row in rows]
    text = "\n".join("| " + " | ".join([_escaped(each) for each in line] if index == 0 else line) + " |"
                     for index, line in enumerate(lines))
    return f"{_escaped(told.caption)}\n\n{text}" if told.caption else text


def _cell(head, row):
    shown = cells.cell(head, row)
    if head.column.format == "verdict":
        return _SIGNS.get(shown.text, shown.text)
    if shown.text and shown.note:
        return f"{_escaped(shown.text)} ({_escaped(shown.note)})"
    return _escaped(shown.text or shown.note or "–")


def _drives(page):
    lines = []
    for entry in page.entries:
        facts = ", ".join(f"{name} {_words(value)}" for name, value in entry.facts.items() if value not in (None, ""))
        reasons = "; ".join(reason["text"] for reason in entry.verdict.get("reasons", []))
        mark = " (highlighted)" if entry.highlighted else ""
        level = _SIGNS.get(entry.verdict["level"], entry.verdict["level"])
        lines.append(f"- **{_escaped(entry.key)}**{mark}: {level}{f': {_escaped(reasons)}' if reasons else ''}"
                     f"{f'. {_escaped(facts)}' if facts else ''}")
    return "\n".join(lines)


def _words(value):
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _escaped(text) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").replace("*", "\\*")
