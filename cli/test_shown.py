"""The results of a test in the terminal."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from blkreel.analysis.results.shown import drive_line, shown

_LEVEL_STYLE = {"valid": "green", "qualified": "yellow", "invalid": "bold red"}
_ONLY_WHERE_SEVERAL = ("n", "Repeat")  # with one repeat, which the verdict tells, these are ones throughout
_SHORT = 20  # a reason up to so many characters stands in its cell, a longer one below the table


def show(document: dict, console: Console | None = None) -> None:
    """Print the document of analysis.results: what it is and how far to trust it, then its tables."""
    console = console or Console()
    console.print(f"[bold]{escape(document['title'] or document['test'])}[/]")
    line = drive_line(document)
    if line:
        console.print(escape(line), highlight=False)
    if document["quick"]:
        console.print("[bold black on yellow] QUICK [/] [bold yellow]shortened to see that it works: these are not the "
                      "figures of the method[/]")
    level = document["verdict"]["level"]
    console.print(f"Verdict: [{_LEVEL_STYLE[level]}]{level}[/]")
    for reason in document["verdict"]["reasons"]:
        console.print(f"  [{_LEVEL_STYLE[reason['level']]}]{reason['level']}[/]: {escape(reason['text'])}",
                      highlight=False)
    for each in document["missing"]:
        console.print(f"  [bold red]missing[/]: {escape(each['title'])}: {escape(each['why'])}", highlight=False)
    for table in document["tables"]:
        if table["rows"]:
            _show_table(shown(table), console)


def _show_table(one, console):
    columns = [[row[index] for row in one.rows] for index in range(len(one.heads))]
    left_out, kept = {}, []
    for index, ((title, _), cells) in enumerate(zip(one.heads, columns, strict=True)):
        why = {cell.why for cell in cells}
        if all(cell.value is None for cell in cells) and len(why) == 1 and why != {""}:
            left_out.setdefault(why.pop(), []).append(title)  # a column of gaps takes room and says one thing
        elif title not in _ONLY_WHERE_SEVERAL or {cell.value for cell in cells} != {1}:
            kept.append(index)
    drawn = Table(title=escape(one.title), title_justify="left", box=box.SIMPLE_HEAD)
    for index in kept:
        title, unit = one.heads[index]
        drawn.add_column(escape(title + (f"\n{unit}" if unit else "")),
                         justify="right" if one.is_number(index) else "left", vertical="bottom")
    notes = []
    for row in one.rows:
        drawn.add_row(*(escape(_text(row[index], notes)) for index in kept))
    console.print(drawn)
    for number, note in enumerate(notes, 1):
        console.print(escape(f"  [{number}] {note}"), highlight=False)
    for why, titles in left_out.items():
        console.print(escape(f"  {', '.join(titles)}: {why}"), highlight=False)


def _text(cell, notes):
    """The cell, or why it is empty: itself, or the number of a note."""
    if not cell.why:
        return cell.text
    brief = cell.why.split(" (")[0]
    if len(brief) <= _SHORT:
        return brief
    if cell.why not in notes:
        notes.append(cell.why)
    return f"{cell.text} [{notes.index(cell.why) + 1}]"
