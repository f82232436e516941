"""States as a user names them and as they are printed, the time left of a preparation, and the rule of steadiness."""

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from blkreel.cli.main import cli
from blkreel.common.errors import UsageError
from blkreel.replay.prepare.precondition import TimeLeft
from blkreel.replay.prepare.resume_point import Record
from blkreel.replay.prepare.states import STATES, state_for
from blkreel.replay.prepare.steady_state import ROUNDS, Steadiness, is_steady

DRIVE = "nil:300GiB,clock=virtual"
GIB = 1 << 30
CAPACITY = 256 * GIB  # so that sizes and times are the method's


@pytest.mark.parametrize("name", ["full", "client", "enterprise", "pts", "op25"])
def test_what_holds_no_block_gets_no_state(name):
    with pytest.raises(UsageError, match="too few for the state") as error:
        state_for(name, 1000, 512, seed=1)
    assert error.value.remedy


@pytest.mark.parametrize(("name", "refused"), [("full", True), ("enterprise", True), ("client", False)])
def test_a_rest_is_for_a_state_that_rests(name, refused):
    words = ["precondition", DRIVE, "--state", name, "--rest", "5s", "--dry-run"]
    if refused:
        with pytest.raises(UsageError, match="has no rest"):
            cli.main(words, standalone_mode=False)
    else:
        assert "resting                  5.00 s" in CliRunner().invoke(cli, words).output


def test_steps_are_told_in_the_units_of_the_field():
    """Blocks are named in powers of two everywhere; the places of other states than `data` are none of theirs."""
    words = ["test", "mixed-burst", "--on", DRIVE, "--dry-run", "--set", "states=client,data,full+op25"]
    told = CliRunner().invoke(cli, words)
    state, reads, _, data, *_ = [line for line in told.output.splitlines() if line[:1].isdigit()]
    assert state.endswith(f"the state client: {STATES['client']}")
    assert "reads: 64 KiB sequential reads at depth 2" in reads
    assert data.endswith("(8.59 GB, 4.19 GB, 4.19 GB)")
    assert f"the state full+op25: {STATES['full']}; on three quarters" in told.output


def test_writes_of_random_sizes_are_told_with_both_sizes():
    told = CliRunner().invoke(cli, ["test", "trace-consistency", "--on", DRIVE, "--dry-run"])
    assert "writes: 4 KiB to 1 MiB random writes at depth 32" in told.output
    assert "fill: 128 KiB sequential writes at depth 32" in told.output


def left(name, *, step, done=0, round_=0, rates=None, **more):
    estimate = TimeLeft(state_for(name, CAPACITY, 512, seed=1, **more))
    for kind, rate in (rates or {}).items():
        estimate.add_rate(kind, rate)
    return estimate, Record("key", name, CAPACITY, step=step, round=round_), done


@pytest.mark.parametrize(("given", "seconds", "longer"), [
    # Half of the fill at 1 GiB/s, and nothing else.
    (left("full", step=1, done=128 * GIB, rates={"sequential": GIB}), 128, False),
    # The random writes are not seen yet: as fast as the fill, or slower.
    (left("enterprise", step=1, done=0, rates={"sequential": GIB}), 512, True),
    (left("enterprise", step=2, done=64 * GIB, rates={"sequential": GIB, "random": GIB / 4}), 4 * 192, False),
    # 8 GiB of random writes, and the rest of five minutes.
    (left("client", step=2, done=0, rates={"sequential": GIB, "random": GIB / 2}), 16 + 300, False),
    (left("client", step=3, rates={"sequential": GIB}), 300, False),
    # The second fill, then five rounds of 16 GiB at least; in the fourth of them; beyond the fifth.
    (left("pts", step=2, done=256 * GIB, rates={"sequential": GIB, "random": GIB / 4}), 5 * 64, True),
    (left("pts", step=3, done=8 * GIB, round_=3, rates={"random": GIB / 4}), 32 + 64, True),
    (left("pts", step=3, done=8 * GIB, round_=9, rates={"random": GIB / 4}), 32, True),
    # An erase that was not seen counts for nothing; a rate of one tells nothing of writes.
    (left("full", step=0, done=128 * GIB, rates={"erase": 64 * GIB}), 2, True),
    (left("op25", step=1, done=0, rates={"sequential": GIB}), 192, False),
])
def test_seconds(given, seconds, longer):
    estimate, record, done = given
    near = pytest.approx(seconds, rel=0.06 if record.name == "client" else 1e-6)
    assert estimate.left(record, done) == (near, longer)


def test_in_words():
    estimate, record, done = left("enterprise", step=1, rates={"sequential": GIB})
    assert estimate.words(record, done) == "; at least 8 min 32 s left in all"
    estimate.add_rate("random", GIB)
    assert estimate.words(record, done) == "; 8 min 32 s left in all"
    estimate, record, done = left("enterprise", step=1)
    assert estimate.words(record, done) == "", "nothing was seen yet"
    estimate.add_rate("sequential", 0.0)
    assert estimate.words(record, done) == ""


@pytest.mark.parametrize(("rounds", "steady"), [
    ([100] * 4, False),
    ([100] * 5, True),
    ([500, 100, 100, 100, 100, 100], True),
    ([90, 110, 90, 110, 100], True),
    ([89.9, 110.1, 90, 110, 100], False),
    ([95, 97.5, 100, 102.5, 105], True),
    ([94.9, 97.4, 100, 102.6, 105.1], False),
    ([105, 102.5, 100, 97.5, 95], True),
])
def test_the_limits(rounds, steady):
    assert is_steady(rounds) is steady


@given(st.lists(st.floats(1, 1e6), min_size=0, max_size=12))
def test_the_rule_as_a_fit_of_another_hand_finds_it(rounds):
    found = Steadiness.of(rounds)
    assert found.rounds == len(rounds)
    if len(rounds) < ROUNDS:
        assert not found.steady and found.account()["mean"] is found.account()["slope_per_round"] is None
        return
    last = np.array(rounds[-ROUNDS:])
    slope, _ = np.polyfit(np.arange(ROUNDS), last, 1)
    mean = last.mean()
    assert found.slope == pytest.approx(slope, abs=1e-9 * mean)
    spread_share, trend_share = (last.max() - last.min()) / mean, 4 * abs(slope) / mean
    if abs(spread_share - 0.2) > 1e-9 and abs(trend_share - 0.1) > 1e-9:
        assert found.steady == (spread_share < 0.2 and trend_share < 0.1)
    account = found.account()
    assert account["spread"] == pytest.approx(spread_share)
    assert account["trend"] == pytest.approx(trend_share, abs=1e-9)
    assert account["values"] == last.tolist()


def test_a_drive_that_stands_still_is_not_steady_by_a_division():
    account = Steadiness.of([0.0] * 5).account()
    assert account["spread"] is None
    assert account["steady"]
