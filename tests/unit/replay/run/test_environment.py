"""A run records everything needed to reproduce or to verify it."""

from pathlib import Path

import pytest
from fake_engine import FakeEngine, replay

from blkreel.common.device import Drive
from blkreel.replay.drive.target import Target
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


def test_a_volume_on_a_loop_device_goes_through_the_page_cache_as_that_does(tmp_path):
    loop = tmp_path / "loop0"
    for name, text in (("loop0/loop/dio", "0"), ("loop0/loop/backing_file", "/gone/image"), ("loop0/p1/partition", "1"),
                       ("dm-0/dm/name", "home")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    (tmp_path / "dm-0/slaves").mkdir()
    (tmp_path / "dm-0/slaves/loop0p1").symlink_to(loop / "p1")
    drive = Drive("dm-0", "/dev/dm-0", "dm", 253, 0, 1 << 20, 512, 512)
    target = Target(Path(drive.path), drive, 1 << 20, 512, "", tmp_path / "dm-0")
    assert environment.uses_page_cache(target)
    (loop / "loop/dio").write_text("1\n")
    assert not environment.uses_page_cache(target)
