"""The page of the demo: a comparison, with the program beside its replay in front, and the answer as its title."""

from dataclasses import replace

from blkreel.analysis.charts.bars import Bar, bar_rows
from blkreel.analysis.charts.model import Answer, Chart, Column, KeyFigure, Page, Row, Section, Table
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Axis
from blkreel.common import units

from .answer import BESIDE, Candidate, Results, change, notes, sentence, slowdown_words
from .pairs import Pairs
from .typical import is_label

_TYPICAL = "Typical drives, simulated"
_ALL_FIGURES = "figures"  # section of a comparison
_COLUMNS = (
    Column("drive", "Drive"), Column("what", "Measured"),
    Column("alone_ns", "Alone", "time", "ns", "geometric mean over the pairs. Program: by its own clock, from the "
           "first file opened to the result. Replay: load time", better="lower"),
    Column("beside_ns", "Beside", "time", "ns", f"the same beside {BESIDE}", better="lower"),
    Column("slowdown", "Slowdown", "number", "×", "geometric mean of beside / alone over the pairs", better="lower"),
    Column("low", "Interval, low", "number", "×", "95 % t interval on ln"),
    Column("high", "Interval, high", "number", "×", "95 % t interval on ln"),
    Column("reached", "Writes reached", "share", "%", "bytes written meanwhile / bytes due, the least of all pairs",
           better="higher"),
    Column("pairs", "Pairs", "count"), Column("verdict", "Verdict", "verdict"))


def edited(page: Page, results: Results) -> Page:
    """The page of the comparison as that of the demo."""
    text = sentence(results)
    answer = page.answer or Answer(text, "")
    answer = replace(answer, sentence=text)
    sections = tuple(replace(section, title=_TYPICAL) if _is_simulated(section) else section
                     for section in page.sections)
    page = replace(page, sections=sections)
    if results.candidates:
        answer = replace(answer, figures=tuple(map(_figure, results.candidates)), differences="")
        page = replace(page, sections=(_section(results), *page.sections))
    notices = (*page.notices, *(f"Left out: {text}" for text in results.left_out))
    return replace(page, title=text, answer=answer, notices=notices)


def _is_simulated(section: Section) -> bool:
    entries = {row.entry for chart in section.charts for row in chart.table.rows if row.entry}
    return bool(entries) and section.id != _ALL_FIGURES and all(map(is_label, entries))


def _figure(candidate: Candidate) -> KeyFigure:
    def words(pairs: Pairs) -> str:
        if not pairs.is_valid:
            return "no valid result"
        return f"{units.duration(pairs.alone_ns)} alone, {units.duration(pairs.beside_ns)} beside"

    return KeyFigure(change(candidate.program.ratio) if candidate.program.is_valid else units.MISSING,
                     f"the program {candidate.words}: {words(candidate.program)}",
                     f"its replay: {change(candidate.replay.ratio) if candidate.replay.is_valid else units.MISSING}, "
                     f"{words(candidate.replay)}")


def _section(results: Results) -> Section:
    rows: list[Row] = []
    bars: list[Bar] = []
    for candidate in results.candidates:
        for what, pairs in (("program", candidate.program), ("replay", candidate.replay)):
            interval = pairs.interval
            values = {"drive": candidate.name, "what": what, "alone_ns": round(pairs.alone_ns),
                      "beside_ns": round(pairs.beside_ns), "slowdown": pairs.ratio,
                      "low": interval.low if interval else None, "high": interval.high if interval else None,
                      "reached": pairs.reached, "pairs": len(pairs.used), "verdict": pairs.verdict["level"]}
            why = {} if interval else dict.fromkeys(("low", "high"), f"n={len(pairs.used)}: too few pairs")
            rows.append(Row(values, None, why))
            text = change(pairs.ratio) if pairs.is_valid else f"{change(pairs.ratio)}, invalid"
            bars.append(Bar(f"{candidate.name}, {what}", pairs.beside_ns, len(bars), text=text, base=pairs.alone_ns,
                            spread=f"{slowdown_words(pairs)} %"))
    title = "The program and its replay"
    names = tuple(bar.entry for bar in bars)
    chart = Chart("program", title, Table(title, _COLUMNS, tuple(rows)),
                  bar_rows(f"{title}: time alone and beside {BESIDE}", bars, SeriesStyle(names, {}),
                           Axis("time", "ns", "linear")), "lower",
                  f"Upper bar: alone. Lower bar: beside {BESIDE}; at the right the slowdown.",
                  tuple(notes(results.candidates)))
    lead = ("The program was captured once, on the disk image. It then ran on both drives, alone and beside a writer, "
            "and the capture was replayed on both, alone and beside the same writes.",)
    return Section("program-replay", title, (chart,), lead)
