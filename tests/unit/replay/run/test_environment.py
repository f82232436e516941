"""A run records everything needed to reproduce or to verify it."""

import pytest
from fake_engine import FakeEngine, replay

from blkreel.replay.run import environment
from blkreel.traces.format.reader import open_trace

# Keys of `run` in the metadata.
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


def test_a_run_records(plan, tmp_path):
    replay(plan, tmp_path / "run", FakeEngine())
    run = open_trace(tmp_path / "run").metadata["run"]
    for path in RECORDED:
        place = run
        for step in path:
            assert step in place, path
            place = place[step]
    assert run["source"]["sha256"] and run["environment"]["kernel"] and run["environment"]["blkreel"]
    assert run["drive"]["size_bytes"] and "serial" not in run["drive"]


@pytest.mark.parametrize(("governors", "told"), [
    ([], None), (["performance", "performance"], "performance"),
    (["powersave", "performance"], "performance, powersave")])
def test_governors_of_all_processors(tmp_path, governors, told):
    for number, text in enumerate(governors):
        path = tmp_path / f"devices/system/cpu/cpu{number}/cpufreq/scaling_governor"
        path.parent.mkdir(parents=True)
        path.write_text(f"{text}\n")
    assert environment.governor(tmp_path) == told
