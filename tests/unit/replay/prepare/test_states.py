"""States as a user names them, and as they are printed in one line."""

import pytest
from click.testing import CliRunner

from blkreel.cli.main import cli
from blkreel.common.errors import UsageError
from blkreel.replay.prepare.states import STATES, state_for

DRIVE = "nil:300GiB,clock=virtual"


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
