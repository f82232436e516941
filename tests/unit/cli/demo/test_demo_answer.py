"""What the demo says: the times of program and replay side by side, how they differ, and what is within noise."""

import re

import pytest

from blkreel.analysis.charts.model import Page
from blkreel.cli.demo.answer import Candidate, Results, lines, sentence
from blkreel.cli.demo.page import edited
from blkreel.cli.demo.pairs import Pair, Pairs
from blkreel.cli.demo.typical import TypicalDrive
from blkreel.common.verdict import judged, reason

LATE = reason("emulated_late", "invalid", "39 % of the I/Os completed late")
BOUND = reason("load_time_lower_bound", "qualified", "load time is a lower bound")
OTHER = reason("host_effect", "qualified", "effect on the reads' p99", "read_p99")


def pairs(*times_s, reasons=(), reached=1.0, notes=()):
    return Pairs(tuple(Pair(alone * 1e9, beside * 1e9, reached) for alone, beside in times_s), judged(reasons),
                 notes=notes)


CLEAR = pairs((1.0, 1.5), (1.01, 1.52), (0.99, 1.49))
NOISY = pairs((1.0, 1.08), (1.1, 1.05), (1.0, 1.1), (1.05, 1.1))


def found(disk, emulated, typical=(), left_out=()):
    candidates = Candidate("disk image", "on the", *disk), Candidate("emulated SATA QLC", "on an", *emulated)
    return Results("Data scan", candidates, typical, left_out)


def text_of(result, width=80):
    text = "\n".join(lines(result, width))
    return re.sub(r"\[/?[a-z ]*\]", "", text)


def test_the_sentence_has_both_drives_and_the_program_itself():
    assert sentence(found((NOISY, NOISY), (CLEAR, pairs((1.0, 1.2), (1.0, 1.21), (1.0, 1.19))))) == (
        "Data scan beside writes of 110 MB/s: +4.4 % on the disk image (1.04 to 1.08 s, within noise), +20 % on an "
        "emulated SATA QLC (1.00 to 1.20 s); the program itself: +4.4 % (within noise) and +50 %")


def test_an_invalid_result_gives_no_figure_and_is_not_compared():
    invalid = pairs((0.8, 0.9), reasons=[LATE])
    both = found((CLEAR, CLEAR), (invalid, invalid))
    assert "no valid replay on an emulated SATA QLC" in sentence(both)
    assert sentence(both).endswith("+50 % and no valid result")
    text = text_of(found((CLEAR, CLEAR), (CLEAR, invalid)))
    assert "emulated SATA QLC: program and replay are not compared: a result is invalid" in " ".join(text.split())
    assert "20 % less" not in text and "+12 %" not in sentence(both)


def test_a_difference_of_program_and_replay_is_said():
    text = " ".join(text_of(found((CLEAR, CLEAR), (CLEAR, pairs((0.8, 0.9), (0.8, 0.9), (0.8, 0.9))))).split())
    assert "disk image: replay and program agree within 5 %" in text
    assert "emulated SATA QLC: the replay took 20 % less than the program alone, and 40 % less beside the" in text


def test_noise_is_said_with_the_pairs_that_would_tell():
    text = " ".join(text_of(found((NOISY, NOISY), (CLEAR, CLEAR))).split())
    number = int(re.search(r"disk image, program: \+4\.4 % over 4 pairs is within noise: about (\d+) pairs would tell",
                           text)[1])
    assert NOISY.interval.low < 1 < NOISY.interval.high and number == NOISY.pairs_needed > 4
    assert "emulated SATA QLC, program: +50" not in text


@pytest.mark.parametrize("level", ["qualified", "invalid"])
def test_the_reasons_of_a_verdict_are_shown_but_not_those_of_other_metrics(level):
    result = found((CLEAR, CLEAR), (CLEAR, pairs((1.0, 1.2), (1.0, 1.2), reasons=[{**BOUND, "level": level}, OTHER],
                                                 notes=("effect of this host on the load time at most +6.3 %",))))
    text = " ".join(text_of(result).split())
    assert f"emulated SATA QLC, replay: {level}: load time is a lower bound" in text
    assert "effect of this host on the load time at most +6.3 %" in text
    assert "p99" not in text


def test_all_lines_fit_80_columns_with_every_column():
    typical = (TypicalDrive("usb", "NVMe QLC without DRAM", None, pairs((1.0, 3.4), reached=0.53)),)
    slow = pairs((10.0, 12.0), (10, 12.1), (11, 12.3), reasons=[BOUND])
    text = text_of(found((NOISY, NOISY), (CLEAR, slow), typical, ("the emulated drive: no /dev/fuse",)))
    assert max(map(len, text.splitlines())) <= 80
    assert "qualified" in text and "verdict" in text and "rate" in text
    assert "NVMe QLC without DRAM" in text and "53" in text
    assert "left out: the emulated drive: no /dev/fuse" in text


def test_without_root_the_answer_is_that_of_the_simulated_drives():
    typical = tuple(TypicalDrive(name, name, None, pairs((1.0, beside))) for name, beside in
                    (("Fast", 1.0), ("SATA", 1.2), ("Stick", 3.4)))
    assert sentence(Results("Model load", (), typical, ("needs root",))) == (
        "Model load beside writes of 110 MB/s: from +0.0 % on Fast to 3.40 times on Stick, of 3 simulated drives")


def test_the_title_of_the_page_is_the_sentence():
    result = found((CLEAR, CLEAR), (CLEAR, CLEAR), left_out=("nothing",))
    page = edited(Page("compare", "two drives", "", (), ()), result)
    assert page.title == page.answer.sentence == sentence(result)
    assert page.notices == ("Left out: nothing",)
    rows = page.sections[0].charts[0].table.rows
    assert [(row.values["drive"], row.values["what"]) for row in rows] == [
        ("disk image", "program"), ("disk image", "replay"), ("emulated SATA QLC", "program"),
        ("emulated SATA QLC", "replay")]
