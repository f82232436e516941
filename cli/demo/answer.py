"""What the demo found: the program and its replay side by side, the typical drives, and the answer in one sentence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from blkreel.analysis.metrics.definitions.headline import LOAD_TIME
from blkreel.analysis.stats.intervals import MOST_PROJECTED
from blkreel.common import units
from blkreel.common.text_table import TextColumn, fitting, lines_of, wrapped
from blkreel.common.verdict import BACKGROUND_LIMIT

from .pairs import Pairs
from .typical import TypicalDrive

BESIDE = "writes of 110 MB/s"
_TIMES_FROM = 3.0  # ratios below are given in percent
_MOST_REASONS = 2  # of one drive
_AGREE = 0.05  # apart by less, program and replay are said to agree


@dataclass(frozen=True)
class Candidate:
    """name: as in `on the disk image`. program, replay: of the same load."""

    name: str
    article: str
    program: Pairs
    replay: Pairs

    @property
    def words(self) -> str:
        return f"{self.article} {self.name}"


@dataclass(frozen=True)
class Results:
    """title: of the load. left_out: what this machine could not do, with the reason and the remedy."""

    title: str
    candidates: tuple[Candidate, ...]
    typical: tuple[TypicalDrive, ...]
    left_out: tuple[str, ...] = ()


def change(ratio: float) -> str:
    """`+21 %`, `3.4 times`."""
    return f"{units.digits(ratio)} times" if ratio >= _TIMES_FROM else f"{percent(ratio)} %"


def percent(ratio: float) -> str:
    value = (ratio - 1) * 100
    return f"{value:+.0f}" if abs(value) >= 9.95 else f"{value:+.1f}"


def sentence(results: Results) -> str:
    """The answer: `Data scan beside writes of 110 MB/s: ...`."""
    head = f"{results.title} beside {BESIDE}"
    if not results.candidates:
        ordered = sorted(results.typical, key=lambda drive: drive.pairs.ratio)
        least, most = ordered[0], ordered[-1]
        return (f"{head}: from {change(least.pairs.ratio)} on {least.title} to {change(most.pairs.ratio)} on "
                f"{most.title}, of {len(ordered)} simulated drives")
    parts = [_result(candidate.replay, candidate.words) for candidate in results.candidates]
    programs = " and ".join(_program_words(candidate.program) for candidate in results.candidates)
    return f"{head}: {', '.join(parts)}; the program itself: {programs}"


def _result(pairs: Pairs, where: str) -> str:
    if not pairs.is_valid:
        return f"no valid replay {where}"
    noise = ", within noise" if pairs.is_noise else ""
    return f"{change(pairs.ratio)} {where} ({_seconds(pairs.alone_ns)} to {_seconds(pairs.beside_ns)} s{noise})"


def _program_words(pairs: Pairs) -> str:
    if not pairs.is_valid:
        return "no valid result"
    return change(pairs.ratio) + (" (within noise)" if pairs.is_noise else "")


def _seconds(value_ns: float) -> str:
    return units.digits(value_ns / 1e9)


def slowdown_words(pairs: Pairs) -> str:
    """`+71 (+65 to +78)` in percent; without the interval of too few pairs."""
    text = percent(pairs.ratio)
    return f"{text} ({percent(pairs.interval.low)} to {percent(pairs.interval.high)})" if pairs.interval else text


def lines(results: Results, width: int) -> Iterator[str]:
    """All but the sentence, as rich markup."""
    if results.candidates:
        yield from wrapped(f"{results.title}, alone and beside {BESIDE}: the program, and the replay of its capture",
                           width)
        yield from lines_of(fitting(_candidate_columns(results.candidates), width))
        for text in notes(results.candidates):
            yield from wrapped(text, width)
    if results.typical:
        yield from wrapped(f"Typical drives, simulated, after a minute of {BESIDE}", width)
        yield from lines_of(fitting(_typical_columns(results.typical), width))
    for text in results.left_out:
        yield from wrapped(f"left out: {text}", width)


def notes(candidates: Sequence[Candidate]) -> Iterator[str]:
    """How program and replay differ, what is within noise, and the reasons of the verdicts."""
    for candidate in candidates:
        yield agreement(candidate)
    for candidate in candidates:
        for what, pairs in (("program", candidate.program), ("replay", candidate.replay)):
            if pairs.is_valid and pairs.is_noise:
                yield f"{candidate.name}, {what}: {noise(pairs)}"
            if pairs.left_out:
                count = "1 invalid pair" if pairs.left_out == 1 else f"{pairs.left_out} invalid pairs"
                yield f"{candidate.name}, {what}: {count} left out"
            for text in (*_reasons(pairs), *pairs.notes):
                yield f"{candidate.name}, {what}: {text}"


def _reasons(pairs: Pairs) -> Iterator[str]:
    """The worst of those that concern the load time; those of other metrics are on the page."""
    reasons = [reason for reason in pairs.verdict["reasons"] if reason["metric"] in (None, LOAD_TIME.key)]
    for reason in reasons[:_MOST_REASONS]:
        yield f"{reason['level']}: {reason['text']}"


def agreement(candidate: Candidate) -> str:
    """`disk image: the replay took 13 % less than the program alone, and 37 % less beside the writes`."""
    if not (candidate.replay.is_valid and candidate.program.is_valid):
        return f"{candidate.name}: program and replay are not compared: a result is invalid"
    alone = candidate.replay.alone_ns / candidate.program.alone_ns
    beside = candidate.replay.beside_ns / candidate.program.beside_ns
    if max(abs(alone - 1), abs(beside - 1)) < _AGREE:
        return f"{candidate.name}: replay and program agree within {_AGREE * 100:.0f} %"
    return (f"{candidate.name}: the replay took {_more(alone)} than the program alone, and {_more(beside)} beside the "
            "writes")


def _more(ratio: float) -> str:
    return f"{abs(ratio - 1) * 100:.0f} % {'more' if ratio > 1 else 'less'}"


def noise(pairs: Pairs) -> str:
    """That a slowdown is within noise, and how many pairs would tell."""
    count = len(pairs.used)
    text = f"{percent(pairs.ratio)} % over {count} pair{'s' if count > 1 else ''} is within noise"
    if count < 2:
        return f"{text}: at least 2 pairs are needed"
    if pairs.pairs_needed is None:
        return f"{text}: more than {MOST_PROJECTED} pairs would be needed"
    return f"{text}: about {max(pairs.pairs_needed, count + 1)} pairs would tell"


def _candidate_columns(candidates: Sequence[Candidate]) -> list[TextColumn]:
    rows = [(candidate.name if what == "program" else "", what, pairs) for candidate in candidates
            for what, pairs in (("program", candidate.program), ("replay", candidate.replay))]
    all_pairs = [pairs for _, _, pairs in rows]
    return [TextColumn("", [name for name, _, _ in rows], right=False),
            TextColumn("", [what for _, what, _ in rows], right=False),
            *_figures(all_pairs, [slowdown_words(pairs) for pairs in all_pairs]), _verdicts(all_pairs)]


def _typical_columns(typical: Sequence[TypicalDrive]) -> list[TextColumn]:
    all_pairs = [drive.pairs for drive in typical]
    return [TextColumn("", [drive.title for drive in typical], right=False),
            *_figures(all_pairs, [percent(pairs.ratio) for pairs in all_pairs])]


def _figures(all_pairs: Sequence[Pairs], slowdowns: Sequence[str]) -> list[TextColumn]:
    shares = [pairs.reached for pairs in all_pairs]
    return [TextColumn("alone", [_seconds(pairs.alone_ns) for pairs in all_pairs], "s"),
            TextColumn("beside", [_seconds(pairs.beside_ns) for pairs in all_pairs], "s"),
            TextColumn("slowdown", slowdowns, "%"),
            TextColumn("rate", [units.MISSING if share is None else f"{share * 100:.0f}" for share in shares], "%",
                       styles=["yellow" if (share or 1) < BACKGROUND_LIMIT else "" for share in shares])]


def _verdicts(all_pairs: Sequence[Pairs]) -> TextColumn:
    levels = [pairs.verdict["level"] for pairs in all_pairs]
    styles = ["bold red" if level == "invalid" else "" for level in levels]
    return TextColumn("verdict", levels, right=False, styles=styles)
