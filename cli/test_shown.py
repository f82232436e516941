"""The results of a test in the terminal."""

from rich import box
from rich.markup import escape
from rich.table import Table

from blkreel.analysis.results.shown import drive_line, shown
from blkreel.cli.console import Console

_LEVEL_STYLE = {"valid": "green", "qualified": "yellow", "invalid": "bold red"}
_ONLY_WHERE_SEVERAL = ("n", "Repeat")  # with one repeat, which the verdict tells, these are ones throughout
_FEW_ROWS = 4
_SHORT = 20  # a reason up to so many characters stands in its cell, a longer one below the table


def show(document: dict, console: Console | None = None) -> None:
    """Print the document of analysis.results: what it is and how far to trust it, then its tables."""
    if console is None:
        console = Console()
        if not console.is_terminal:
            console = Console(width=200)  # a file or a pipe has no width to fold a table for
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
    notes = []
    texts = [[_text(row[index], notes) for index in kept] for row in one.rows]
    heads = [one.heads[index] for index in kept]
    _draw(one.title, heads, texts, [one.is_number(index) for index in kept], console)
    for number, note in enumerate(notes, 1):
        console.print(escape(f"  [{number}] {note}"), highlight=False)
    for why, titles in left_out.items():
        console.print(escape(f"  {', '.join(titles)}: {why}"), highlight=False)


def _draw(title, heads, texts, numbers, console):
    """As it is where it fits. Otherwise a figure a line where there are few rows, and else in several parts, each with
    the first column. Only headings are folded: folded cells cannot be read down a column."""
    widths = [_least_width(heads[index], [row[index] for row in texts]) for index in range(len(heads))]
    if _width(widths) <= console.width or len(heads) < 3:
        console.print(_table(title, heads, texts, numbers, widths))
        return
    if len(texts) <= _FEW_ROWS:
        turned = [[_head(heads[index]).replace("\n", ", "), *(row[index] for row in texts)]
                  for index in range(1, len(heads))]
        unit = heads[0][1] and f" {heads[0][1]}"
        names = [(heads[0][0], ""), *((row[0] + unit, "") for row in texts)]
        console.print(_table(title, names, turned, [False] + [True] * len(texts)))
        return
    begin = 1
    while begin < len(heads):
        end = begin + 1
        while end < len(heads) and _width([widths[0], *widths[begin:end + 1]]) <= console.width:
            end += 1
        kept = [0, *range(begin, end)]
        console.print(_table(title, [heads[index] for index in kept],
                             [[row[index] for index in kept] for row in texts], [numbers[index] for index in kept],
                             [widths[index] for index in kept]))
        begin = end


def _least_width(head, cells):
    return max(map(len, [*_head(head).split(), *cells, ""]))


def _width(widths):
    return sum(widths) + 3 * len(widths)  # what stands between columns and at both ends


def _head(head):
    return "\n".join(filter(None, head))


def _table(title, heads, texts, numbers, widths=None):
    drawn = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD)
    for index, (head, is_number) in enumerate(zip(heads, numbers, strict=True)):
        drawn.add_column(escape(_head(head)), justify="right" if is_number else "left", vertical="bottom",
                         min_width=widths[index] if widths else None)
    for row in texts:
        drawn.add_row(*map(escape, row))
    return drawn


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
