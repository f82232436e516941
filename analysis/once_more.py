"""What takes another pass over the rows: I/O by I/O comparisons, and what writes do to reads. Only for a page."""

from blkreel.traces.reader import open_trace

from .interference import interference
from .paired import paired

MOST_ROWS = 20_000_000  # in all runs of a comparison; about a minute
MOST_ENTRIES = 40  # of a section: a larger one is a fleet, which is looked at by its figures


def read_again(sections, far: bool = False, most_rows: int = MOST_ROWS, marked: str | None = None) -> None:
    """Put `paired` and `interference` to the documents of sections (document.Section). Raises TraceError.

    far: the rows are not on this machine. Then, or where there are more rows or entries than that, what is left out
    says so: a fleet is compared by its partial results, and its rows stay where they are. marked: label of the drive
    under test, which the others stand against; without it, or where it is not, the first.
    """
    rows = sum(each.rows for section in sections for entry in section.entries for each in entry.measured)
    why = ""
    if far or any("://" in str(each.path) for section in sections for entry in section.entries
                  for each in entry.measured):
        why = "left out: it takes each row, and rows that are elsewhere stay there; copy the runs here to see it"
    elif rows > most_rows:
        why = f"left out: {rows:,} I/Os are more than the {most_rows:,} that a page reads once more"
    elif any(len(section.entries) > MOST_ENTRIES for section in sections):
        why = f"left out: it takes each row, and a comparison of more than {MOST_ENTRIES} drives reads figures only"
    for section in sections:
        for entry in section.entries:
            entry.shown["interference"] = {"why": why} if why else _interference(entry)
        first = next((entry for entry in section.entries if entry.shown["label"] == marked), section.entries[0])
        others = [entry for entry in section.entries if entry is not first]
        section.shown["paired"] = [
            {"base": first.shown["label"], "other": other.shown["label"],
             **({"why": why} if why else paired(first.measured, other.measured))} for other in others]


def _interference(entry):
    found = None
    for each in entry.measured:
        one = interference(open_trace(each.path))
        found = one if found is None else found + one
    if not found.reads or not found.writes:
        return {"why": "no reads" if not found.reads else "no writes"}
    return found.shown()
