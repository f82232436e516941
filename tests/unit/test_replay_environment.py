"""A run records all that somebody needs who wants to make it again, or to doubt it."""

import pytest

from blkreel.replay import environment
from blkreel.traces.reader import open_trace
from tests.unit.test_replay_run import FakeEngine, plan, replay, state_directory, target  # noqa: F401

# The method's list: what, and where in the account it stands.
RECORDED = [
    ("drive", "model"), ("drive", "firmware"), ("drive", "serial_hash"), ("drive", "size_bytes"),
    ("drive", "logical_block_bytes"), ("drive", "physical_block_bytes"), ("drive", "write_cache"),
    ("environment", "link"), ("environment", "kernel"), ("environment", "cpu_model"), ("environment", "governor"),
    ("environment", "scheduler"), ("environment", "nr_requests"), ("environment", "blkreel"),
    ("environment", "libraries"), ("environment", "python"), ("seed",),
    ("telemetry", "temperature_c"), ("telemetry", "smart"), ("telemetry", "link"), ("telemetry", "missing"),
    ("source", "sha256"), ("source", "source_format"), ("source", "command"),
    ("state", "name"), ("state", "prepared_at"),
]


@pytest.mark.parametrize("way", RECORDED, ids=".".join)
def test_what_a_run_records(plan, tmp_path, way):  # noqa: F811
    replay(plan, tmp_path / "run", FakeEngine())
    place = open_trace(tmp_path / "run").metadata["run"]
    for step in way:
        assert step in place, way
        place = place[step]
    if way in (("source", "sha256"), ("environment", "kernel"), ("drive", "size_bytes"), ("environment", "blkreel")):
        assert place


def test_the_serial_itself_is_nowhere(plan, tmp_path, target):  # noqa: F811
    replay(plan, tmp_path / "run", FakeEngine())
    assert "serial" not in open_trace(tmp_path / "run").metadata["run"]["drive"]


@pytest.mark.parametrize(("governors", "told"), [
    ([], None), (["performance", "performance"], "performance"),
    (["powersave", "performance"], "performance, powersave")])
def test_governors_of_all_processors(tmp_path, governors, told):
    for number, text in enumerate(governors):
        path = tmp_path / f"devices/system/cpu/cpu{number}/cpufreq/scaling_governor"
        path.parent.mkdir(parents=True)
        path.write_text(f"{text}\n")
    assert environment.governor(tmp_path) == told
