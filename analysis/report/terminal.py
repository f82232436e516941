"""A comparison or a report in the terminal: the answer, a table that fits the width, and what is not shown.

The default is at most MOST_LINES lines at 80 columns. Whole columns and rows are left out, and no number is cut.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.markup import escape

from blkreel.analysis.metrics.definitions.headline import leading_metrics
from blkreel.analysis.metrics.definitions.metric import Metric, pace_names
from blkreel.analysis.metrics.definitions.registry import CLASS_METRICS, METRICS, value_at
from blkreel.analysis.metrics.partials.boundary_state import CLASSES
from blkreel.analysis.stats.ranking import ENOUGH_RUNS
from blkreel.common import units
from blkreel.common.binning import grouped
from blkreel.common.console import Detail
from blkreel.common.printable import within_sentence
from blkreel.common.text_table import TextColumn, fitting, in_parts, lines_of, shortened, wrapped
from blkreel.common.verdict import LEVELS

from .answer import in_order, reasons, sentence
from .beside import without_slowdown
from .columns import WITHHELD, Column, columns_of, idle_words, is_withheld, missing, remark_of, state_words, value_of
from .verdict import Document
from .workloads import percent

MOST_LINES = 25
_MOST_LABEL = 0.45  # of the width
_FEWEST_ROWS = 3
_NAMED_RUNS = 4
_HINT_LINES = 2
_LEVEL_STYLE = {"valid": "green", "qualified": "yellow", "invalid": "bold red"}


@dataclass(frozen=True)
class _Table:
    """A section as lines. dropped: columns and drives that are not in it."""

    lines: list[str]
    dropped_columns: int = 0
    dropped_drives: int = 0


def comparison_lines(document: Document, detail: Detail, width: int, more_lines: int = 0,
                     under_test: str | None = None) -> list[str]:
    """A comparison as lines of rich markup. more_lines: what the caller prints behind them. under_test: label of the
    drive under test."""
    sections = document["sections"]
    if detail.everything:
        return [*_head(document, width), *_everything(sections, width, under_test),
                *_verdicts(sections, detail, width)]
    head = _head(document, width)
    closing = _verdicts(sections, detail, width)
    room = MOST_LINES - len(head) - len(_verdicts(sections, Detail(), width)) - more_lines - _HINT_LINES
    table = _fitted(sections, width, room, under_test)
    hints = []
    if table.dropped_columns or table.dropped_drives:
        parts = [units.counted(count, name) for count, name in (
            (table.dropped_drives, "drive"), (table.dropped_columns, "column")) if count]
        hints.append(f"not shown: {' and '.join(parts)} (--all)")
    if not detail.why and any(_reasons(sections)):
        hints.append("reasons of the verdicts: --why")
    return [*head, *table.lines, *closing, *(wrapped("; ".join(hints), width) if hints else [])]


def benchmark_lines(document: Document, width: int) -> list[str]:
    """A comparison of several benchmarks without runs: the answer, and each drive in percent of the reference drive."""
    relative = document["relative_performance"]
    workloads = relative["workloads"]
    labels = list(dict.fromkeys(label for workload in workloads for label in workload["drives"]))
    overall = {label: own["value"] for label, own in relative["drives"].items()}
    labels.sort(key=lambda label: -overall.get(label, 0))

    def cells(shares: Mapping[str, float]) -> list[str]:
        return [percent(shares[label]) if label in shares else units.MISSING for label in labels]

    columns = [TextColumn("", labels, right=False), TextColumn("all benchmarks", cells(overall)),
               *(TextColumn(workload["title"], cells(workload["drives"])) for workload in workloads)]
    return [*(line for note in document["notes"] for line in _wrapped(f"Note: {note}", width)),
            *_wrapped(document["answer"]["sentence"], width),
            *(line for part in in_parts(columns, width) for line in lines_of(part)),
            *_wrapped(f"100 % is {relative['reference']}. {document['answer']['differences']}".rstrip(), width)]


def report_lines(document: Document, width: int) -> list[str]:
    """All metrics of one run or trace: a table by class of I/O, and the others."""
    entry, paces = document["entry"], pace_names(document["entry"]["pace"])
    rows = class_rows(entry)
    columns = [TextColumn("", [label for label, _ in rows], right=False),
               *(TextColumn(name, [cells[index] for _, cells in rows])
                 for index, name in enumerate(("reads", "writes", "other")))]
    lines = [line for part in in_parts(columns, width) for line in lines_of(part)]
    for metric in METRICS.values():
        if not metric.op and metric.listed and metric.meaningful(paces) and (
                value := value_of(entry, metric)) is not None:
            lines.append(escape(f"{metric.title}: {metric.unit.text(value)}"))
    return lines


def class_rows(entry: Document) -> list[tuple[str, list[str]]]:
    """(label, a cell each for reads, writes, other) of the figures of one run, that have a meaning at its paces."""
    figures, paces = entry["figures"], pace_names(entry["pace"])
    rows = []
    for row in CLASS_METRICS:
        metrics = [METRICS[f"{op}_{row.key}"] for op in CLASSES]
        values = [value_at(figures, metric.path) for metric in metrics]
        if not (row.listed and row.group and metrics[0].meaningful(paces)) or not any(values if row.optional else
                                     (figures[op].get(row.group, {}).get("n", 1) for op in CLASSES)):
            continue
        rows.append((row.label, [_class_cell(entry, metric) for metric in metrics]))
    return rows


def _class_cell(entry: Document, metric: Metric) -> str:
    value = value_of(entry, metric)
    if value is None:
        why = missing(entry, metric)
        return why if why.startswith(("n too small", WITHHELD)) else units.MISSING
    return metric.unit.text(value) if entry["figures"][metric.op]["ops"] or metric.optional else units.MISSING


def _leading(section: Document) -> tuple[Metric, ...]:
    return leading_metrics(pace_names(section["pace"]))


def _wrapped(text: str, width: int) -> list[str]:
    return [escape(line) for line in wrapped(text, width)]


def _head(document: Document, width: int) -> list[str]:
    """The notes, and of several workloads the answer over all."""
    over = _wrapped(document["answer"]["sentence"], width) if document.get("relative_performance") else []
    return [*(line for note in document["notes"] for line in _wrapped(f"Note: {note}", width)),
            *(f"[bold]{line}[/]" for line in over)]


def _fitted(sections: Sequence[Document], width: int, room: int, under_test: str | None) -> _Table:
    """The sections in at most `room` lines."""
    for with_answers in (True, False):
        answers = [sentence(section, under_test) if with_answers else "" for section in sections]
        tables = [_section_table(section, width, len(section["entries"]), answer)
                  for section, answer in zip(sections, answers, strict=True)]
        if sum(len(table.lines) for table in tables) <= room:
            return _joined(tables)
    if len(sections) == 1:
        (section,) = sections
        answer = sentence(section, under_test)
        above = len(_section_table(section, width, 1, answer).lines) - 1
        return _section_table(section, width, max(1, room - above), answer)
    if (matrix := _matrix(sections, width, room)):
        return matrix
    rows = max(1, room // len(sections) - _FEWEST_ROWS)
    tables = [_section_table(section, width, rows, "") for section in sections]
    lines = 0
    for count, table in enumerate(tables):
        lines += len(table.lines)
        if lines > room - 1 and count:
            omitted = len(tables) - count
            words = f"and {omitted} more {'section' if omitted == 1 else 'sections'}"
            return _joined([*tables[:count], _Table([words])])
    return _joined(tables)


def _joined(tables: Sequence[_Table]) -> _Table:
    return _Table([line for table in tables for line in table.lines], max(table.dropped_columns for table in tables),
                  max(table.dropped_drives for table in tables))


def _section_table(section: Document, width: int, rows: int, answer: str) -> _Table:
    """One row per drive, the best first where there are more than two; before it the title and the answer."""
    entries, columns = section["entries"], columns_of(section["entries"])
    ordered = _in_order(entries, columns)
    if len(ordered) > rows:
        ordered = ordered[:rows]
    labels = _labels([entry["label"] for entry in ordered], int(width * _MOST_LABEL))
    first = TextColumn("", labels, right=False)
    verdict = TextColumn("verdict", [entry["verdict"]["level"] for entry in ordered], right=False,
                         styles=[_LEVEL_STYLE[entry["verdict"]["level"]] for entry in ordered])
    values = [TextColumn(column.title, [_value(column, entry) for entry in ordered], column.unit) for column in columns]
    if (ranks := _ranks(ordered, columns)) is not None:
        values.insert(0, ranks)
    chosen = fitting([first, verdict, *values], width)
    table = [chosen[0], *chosen[2:], verdict] if verdict in chosen else chosen
    dropped = len(values) - len(table) + 2
    lines = [*_wrapped(section["title"], width), *(f"[bold]{line}[/]" for line in _wrapped(answer, width)),
             *lines_of(table)]
    return _Table(lines, dropped, len(entries) - len(ordered))


def _matrix(sections: Sequence[Document], width: int, room: int) -> _Table | None:
    """The leading metric of each section, one row per section, one column per drive; None if that does not fit."""
    labels = list(dict.fromkeys(entry["label"] for section in sections for entry in section["entries"]))
    titles, metrics, cells = [], [], []
    for section in sections:
        column = next((candidate for candidate in columns_of(section["entries"])
                       if candidate.metric in _leading(section)), None)
        if column is None:
            continue
        values = {entry["label"]: f"{_value(column, entry)} {column.unit}".strip() for entry in section["entries"]}
        titles.append(shortened(section["title"], width // 2))
        metrics.append(column.metric.noun)
        cells.append([values.get(label, "") for label in labels])
    for shorter in (labels, _labels(labels, max(12, width // 5))):
        columns = [TextColumn("", titles, right=False), TextColumn("", metrics, right=False),
                   *(TextColumn(label, [row[index] for row in cells]) for index, label in enumerate(shorter))]
        chosen = fitting(columns, width)
        if len(chosen) == len(columns):
            break
    lines = lines_of(chosen)
    if len(chosen) < len(columns) or len(lines) > room:
        return None
    return _Table(lines, max(len(columns_of(section["entries"])) for section in sections) - 1)


def _everything(sections: Sequence[Document], width: int, under_test: str | None) -> Iterator[str]:
    """All drives, the best first where there are more than two, with all columns, intervals and comparisons."""
    for section in sections:
        columns = columns_of(section["entries"])
        entries = _in_order(section["entries"], columns)
        table = [TextColumn("", [entry["label"] for entry in entries], right=False),
                 *(TextColumn(column.title, [_text(column, entry) for entry in entries], column.unit)
                   for column in columns)]
        if entries[0]["idle"]:
            table += [TextColumn("idle", [idle_words(entry["idle"]) for entry in entries], right=False),
                      TextColumn("state before", [state_words(entry["state"]) for entry in entries], right=False)]
        table.append(TextColumn("verdict", [entry["verdict"]["level"] for entry in entries], right=False,
                                styles=[_LEVEL_STYLE[entry["verdict"]["level"]] for entry in entries]))
        yield from _wrapped(section["title"], width)
        yield from _wrapped(sentence(section, under_test), width)
        for part in in_parts(table, width):
            yield from lines_of(part)
        yield from _comparisons(section, width)


def _comparisons(section: Document, width: int) -> Iterator[str]:
    """Ranks and ratios of the leading metrics; nothing with too few runs for an interval."""
    leading = _leading(section)
    if not any(entry["headline"][metric.key]["low"] is not None for entry in section["entries"] for metric in leading):
        return
    yield from _wrapped("In brackets: 95 % interval of the geometric mean over runs; beside a percentile, which is of "
                       "the I/Os of all runs, that of the runs' own percentiles.", width)
    if len(section["entries"]) < 2:
        return
    for metric in leading:
        if words := rank_words(section["entries"], metric):
            yield from _wrapped(f"{metric.title}: {words}", width)
    for ratio in section["ratios"]:
        if METRICS[ratio["figure"]] in leading and ratio["low"] is not None:
            yield from _wrapped(f"  {ratio_words(ratio)}", width)


def _verdicts(sections: Sequence[Document], detail: Detail, width: int) -> list[str]:
    """How many runs have each verdict, and which are invalid; with detail.why the reasons by cause."""
    runs = [run for section in sections for entry in section["entries"] for run in entry["runs"]]
    levels = [run["verdict"]["level"] for run in runs]
    counts = ", ".join(f"{levels.count(level)} {level}" for level in LEVELS if level in levels)
    few = {entry["label"] for section in sections for entry in section["entries"]
           if entry["verdict"]["level"] == "qualified"
           and any(reason.get("code") == "few_runs" for reason in entry["verdict"]["reasons"])}
    of_drives = (f"; verdict of {len(few)} {'drive' if len(few) == 1 else 'drives'}: qualified, fewer than "
                 f"{ENOUGH_RUNS} runs" if few else "")
    lines = _wrapped(f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}: {counts}{of_drives}", width)
    if invalid := [run["path"] for run in runs if run["verdict"]["level"] == "invalid"]:
        named = ", ".join(invalid[:_NAMED_RUNS])
        more = f" and {len(invalid) - _NAMED_RUNS} more" if len(invalid) > _NAMED_RUNS else ""
        leave_out = "; leave out: --drop-invalid" if len(invalid) < len(runs) else ""
        lines += _wrapped(f"invalid: {named}{more}{leave_out}", width)
    withheld = grouped((why, entry["label"]) for section in sections for entry in section["entries"]
                       if (why := without_slowdown(entry)))
    for why, labels in withheld.items():
        lines += _wrapped(f"{', '.join(labels)}: {why}", width)
    if detail.verbose:
        for run in runs:
            verdict = run["verdict"]
            reason = f": {verdict['reasons'][0]['text']}" if verdict["reasons"] else ""
            lines += _wrapped(f"  {run['path']}: {verdict['level']}{reason}", width)
    if detail.why:
        for level, text in _reasons(sections):
            lines += _wrapped(f"{level}: {text}", width)
    return lines


def _reasons(sections: Sequence[Document]) -> list[tuple[str, str]]:
    """(level, text with the drives) of each cause, the worst first."""
    return reasons([entry for section in sections for entry in section["entries"]])


def _in_order(entries: Sequence[Document], columns: Sequence[Column]) -> list[Document]:
    """The best first by the first column, drives without a usable value last; two drives stay in their order."""
    if len(entries) < 3 or not columns:
        return list(entries)
    ordered = in_order(entries, columns[0].metric)
    return [*ordered, *(entry for entry in entries if entry not in ordered)]


def _ranks(entries: Sequence[Document], columns: Sequence[Column]) -> TextColumn | None:
    if not columns:
        return None
    ranks = [entry["headline"][columns[0].metric.key]["rank"] for entry in entries]
    return TextColumn("rank", [str(rank or "") for rank in ranks]) if any(ranks) else None


def _labels(labels: Sequence[str], most: int) -> list[str]:
    """The labels, shortened where they are too long, as long as they stay different."""
    short = [shortened(label, max(most, 12)) for label in labels]
    return short if len(set(short)) == len(set(labels)) else list(labels)


def _value(column: Column, entry: Document) -> str:
    return WITHHELD if is_withheld(entry, column.metric) else column.cell(entry).text


def _text(column: Column, entry: Document) -> str:
    """The value with its interval, or why there is none."""
    cell = column.cell(entry)
    if cell.value is None:
        return cell.note
    interval = f" ({cell.interval})" if cell.interval else ""
    return f"{cell.text}{interval}{' *' if remark_of(entry, column.metric) else ''}"


def rank_words(entries: list[Document], metric: Metric) -> str:
    """"1 A, B (tie); 3 C"; drives without a rank at the end, with the reason. Empty where none has one."""
    groups: dict[int, list[str]] = {}
    without: list[str] = []
    for entry in entries:
        rank = entry["headline"][metric.key]["rank"]
        (groups.setdefault(rank, []) if rank else without).append(entry["label"])
    if not groups:
        return ""
    words = [f"{rank} {', '.join(groups[rank])}{' (tie)' if len(groups[rank]) > 1 else ''}" for rank in sorted(groups)]
    if without:
        words.append(f"without a rank, with fewer than {ENOUGH_RUNS} runs, an invalid one or without this figure: "
                     f"{', '.join(without)}")
    return "; ".join(words)


def ratio_words(ratio: Document) -> str:
    """"B against A, wait time: +12.0 % (+8.1 % to +16.2 %), they differ"."""
    value, low, high = (units.format_change(ratio[key] - 1) for key in ("value", "low", "high"))
    outcome = "they differ" if ratio["differ"] else f"a tie: {ratio['why']}"
    title = METRICS[ratio["figure"]].title
    return f"{ratio['other']} against {ratio['base']}, {within_sentence(title)}: {value} ({low} to {high}), {outcome}"
