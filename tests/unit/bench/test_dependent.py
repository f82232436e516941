"""The measurement of dependent replay: its programs, and which of them a machine lacks."""

import sys
from pathlib import Path

import numpy as np
import pytest
from tree import TREE

sys.path.insert(0, str(TREE / "bench"))

import replay_dependent  # noqa: E402
from dependent import Shown, median_error  # noqa: E402
from dependent_programs import Program  # noqa: E402


def test_a_program_that_is_not_installed_is_skipped_with_its_package(monkeypatch, capsys, tmp_path):
    """A name is looked up in PATH, a path as it is; nothing is made or measured."""
    (tmp_path / "present").touch()
    lacks = Program("database", lambda place: [], needs=(
        ("sh", "dash"), (tmp_path / "present", "client"), (Path("/nowhere/pg_ctl"), "server"),
        ("no-such-program", "tool")))
    monkeypatch.setattr(replay_dependent, "PROGRAMS", [lacks])
    monkeypatch.setattr(replay_dependent, "need", lambda *programs: None)
    monkeypatch.setattr(replay_dependent.signal, "signal", lambda *arguments: None)
    monkeypatch.setattr(sys, "argv", ["replay_dependent.py"])
    replay_dependent.main()
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == ("database: skipped: /nowhere/pg_ctl not found; apt-get install server; "
                    "no-such-program not found; apt-get install tool")


def test_the_error_is_that_of_the_medians_and_its_interval_spans_the_repetitions():
    program_s, replayed_s = np.array([1.0, 1.0, 1.0, 1.0, 9.0]), np.array([1.1, 1.1, 1.1, 1.2, 0.5])
    error, low, high = median_error(replayed_s, program_s)
    assert error == pytest.approx(0.1) and low < 0 < error < high
    assert median_error(np.full(5, 1.1), np.ones(5)) == pytest.approx((0.1, 0.1, 0.1))


@pytest.mark.parametrize(("ios", "by_stretches"), [((40, 40), "+50.0%"), ((40, 39), "")])
def test_other_work_in_another_stretch_of_each_repetition_leaves_the_error(ios, by_stretches):
    """The replay takes half as long again; a second is lost in the first stretch once, and once in the last."""
    def repetition(count, disturbed):
        return np.where(np.arange(count) == disturbed, 1.0, 0.0) + 0.01

    shown = [Shown(*(repetition(count, disturbed) * (1.5 if name == "dependent_s" else 1)
                     for name in Shown.__dataclass_fields__)) for count, disturbed in zip(ios, (3, 33), strict=True)]
    text = replay_dependent.cells(shown, replay_dependent.DIRECTIONS["to fast"])
    assert text[-1] == by_stretches
    assert text[4].startswith("+50.0%") and text[5].startswith("+0.0%")
