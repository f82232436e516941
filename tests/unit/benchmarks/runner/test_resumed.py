"""`blkreel test --resume` and `--force`: what test.json and a directory may make them do. On regular files."""

import json
import os
import shlex
import shutil
import time

import pytest
from documented import run_blkreel
from empty_image import digest
from small_benchmark import TWO_DEPTHS

from blkreel.benchmarks.recipe.recipe import load_recipe
from blkreel.cli.commands.drive.test import _overrides
from blkreel.common.device import describe
from blkreel.replay.drive.target import find_target

NOBODY = 65534
IMAGE_BYTES = 16 << 20


def image_at(path):
    path.write_bytes(b"precious" * (IMAGE_BYTES // 16))
    os.truncate(path, IMAGE_BYTES)
    return path


@pytest.fixture(scope="module")
def ended(tmp_path_factory, command_server):
    """A directory with a recipe, an image, and a test of it in `out`, which has ended."""
    directory = tmp_path_factory.mktemp("ended")
    (directory / "writes.toml").write_text(TWO_DEPTHS)
    image_at(directory / "image")
    run_blkreel(command_server, directory, "test", "writes.toml", "--on", directory / "image", "-o", "out")
    return directory


@pytest.fixture
def image(ended):
    return ended / "image"


@pytest.fixture
def output(ended, tmp_path):
    """A copy of the test."""
    return shutil.copytree(ended / "out", tmp_path / "out")


def change(output, **changes):
    """Write test.json as somebody else could, its last step to be carried out again."""
    document = json.loads((output / "test.json").read_text()) | changes
    document["steps"][-1] |= {"status": "waiting", "started_at": None, "ended_at": None, "result": None}
    document["ended_at"] = None
    (output / "test.json").write_text(json.dumps(document))
    for file in (output / document["steps"][-1]["directory"]).iterdir():
        file.unlink()


def test_the_file_that_test_json_names_is_not_overwritten_unless_the_command_names_it(blkreel, output, tmp_path):
    victim = image_at(tmp_path / "victim")
    change(output, device=str(victim), drive=describe(find_target(victim).drive), units=[str(victim)])
    before = digest(victim)
    refused = blkreel("test", "--resume", output, code=5)
    assert f"this overwrites {victim}" in refused.stderr
    assert f"blkreel test --resume {output} --on {victim}" in refused.stderr.replace(str(blkreel.command), "blkreel")
    assert digest(victim) == before
    blkreel("test", "--resume", output, "--on", victim, code=(0, 3))
    assert digest(victim) != before


def test_a_test_that_has_ended_is_shown_without_naming_its_file(blkreel, output):
    shown = blkreel("test", "--resume", output, code=(0, 3))
    assert any(level in shown.stdout for level in ("valid", "qualified"))


@pytest.mark.parametrize("owned", ["directory", "test.json", "writable"])
def test_a_power_command_that_others_can_have_written_is_not_run(blkreel, output, image, require_root, tmp_path, owned):
    command = f"touch {tmp_path / 'ran'}; while sleep 0.1; do echo 1 1; done"
    document = json.loads((output / "test.json").read_text())
    change(output, telemetry={**document["telemetry"], "power_command": command})
    if owned == "writable":
        output.chmod(0o777)
    else:
        os.chown(output if owned == "directory" else output / "test.json", NOBODY, NOBODY)
    named = ["test", "--resume", output, "--on", image]
    assert f"--power-command {shlex.quote(command)}" in blkreel(*named, code=5).stderr
    assert not (tmp_path / "ran").exists()
    blkreel(*named, "--power-command", command, code=(0, 3))
    assert (tmp_path / "ran").exists()


def test_a_power_command_that_only_this_user_can_have_written_runs_again(blkreel, output, image, tmp_path):
    document = json.loads((output / "test.json").read_text())
    command = f"touch {tmp_path / 'ran'}; while sleep 0.1; do echo 1 1; done"
    change(output, telemetry={**document["telemetry"], "power_command": command})
    output.chmod(0o755)
    (output / "test.json").chmod(0o644)
    blkreel("test", "--resume", output, "--on", image, code=(0, 3))
    assert (tmp_path / "ran").exists()


def test_a_step_set_aside_stays_in_its_directory(blkreel, output, image, tmp_path):
    document = json.loads((output / "test.json").read_text())
    (tmp_path / "elsewhere").mkdir()
    for step in document["steps"]:
        step |= {"status": "failed", "interrupted": "1/../../../elsewhere/x"}
    (output / "test.json").write_text(json.dumps(document))
    refused = blkreel("test", "--resume", output, "--on", image, check=False)
    assert (refused.returncode, list((tmp_path / "elsewhere").iterdir())) == (1, [])
    assert "test.json is damaged" in refused.stderr


@pytest.mark.parametrize("directory", ["../elsewhere", "steps/..", "/{elsewhere}", "steps/../../elsewhere",
                                       "steps/link", 5])
def test_a_power_log_is_added_to_no_run_elsewhere(blkreel, output, tmp_path, directory):
    document = json.loads((output / "test.json").read_text())
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(output / document["steps"][0]["directory"], elsewhere)
    before = {path.name: path.read_bytes() for path in elsewhere.iterdir()}
    (output / "steps/link").symlink_to(elsewhere)
    document["steps"][0]["directory"] = str(directory).format(elsewhere=elsewhere) if directory != 5 else 5
    (output / "test.json").write_text(json.dumps(document))
    start_s = time.time() - 3600
    (tmp_path / "meter.csv").write_text("".join(f"{start_s + second},5\n" for second in range(7200)))
    refused = blkreel("power", output, "--log", tmp_path / "meter.csv", code=1)
    assert {5: "test.json is damaged", "steps/link": "is a symbolic link"}.get(
        directory, "is not in steps/") in refused.stderr
    assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == before


def test_force_removes_what_a_test_made_and_nothing_else(blkreel, output, image, tmp_path):
    run = output / "steps" / json.loads((output / "test.json").read_text())["steps"][0]["id"]
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "records.parquet").write_text("mine")
    for name in ("report.html", "steps/notes.txt", f"steps/{run.name}/notes.txt"):
        (output / name).write_text("mine")
    (output / "runs").mkdir()
    (output / "runs/records.parquet").write_text("mine")
    (output / f"steps/{run.name}.interrupted-1").symlink_to(outside)
    left = output / f"steps/{run.name}.interrupted-2/.records.parquet.spool"
    left.mkdir(parents=True)
    for name in ("rows.blocks", "reserve", "metadata.json", "trace.parquet"):
        (left / name).write_text("old")
    (run / "records.parquet").write_text("old")
    blkreel("test", image.parent / "writes.toml", "--on", image, "-o", output, "--force", code=(0, 3))
    for name in ("report.html", "steps/notes.txt", f"steps/{run.name}/notes.txt", "runs/records.parquet"):
        assert (output / name).read_text() == "mine"
    assert (outside / "records.parquet").read_text() == "mine"
    assert not left.parent.exists()
    assert (run / "records.parquet").read_bytes()[:4] == b"PAR1"


def test_force_does_not_touch_a_directory_that_is_no_test(blkreel, tmp_path):
    (tmp_path / "writes.toml").write_text(TWO_DEPTHS)
    (tmp_path / "photos/steps").mkdir(parents=True)
    (tmp_path / "photos/results.json").write_text("mine")
    refused = blkreel("test", tmp_path / "writes.toml", "--on", image_at(tmp_path / "image"), "-o", tmp_path / "photos",
                      "--force", code=1)
    assert "exists and is not a test directory; use another output" in refused.stderr
    assert (tmp_path / "photos/results.json").read_text() == "mine"


def test_a_dry_run_of_a_resumed_test_shows_the_steps_that_are_left_and_writes_nothing(blkreel, output, image):
    change(output)
    files = [image, *output.rglob("*.json"), *output.rglob("*.parquet")]
    before = {path: digest(path) for path in files}
    shown = json.loads(blkreel("test", "--resume", output, "--dry-run", "--json").stdout)
    stored = json.loads((output / "test.json").read_text())
    assert shown["dry_run"] and [step["id"] for step in shown["steps"]] == [stored["steps"][-1]["id"]]
    assert {path: digest(path) for path in before} == before


def test_a_trace_is_found_from_wherever_a_test_goes_on(tmp_path, monkeypatch):
    (tmp_path / "game.parquet").touch()
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe("trace")
    stored = {"overrides": {"trace": "game.parquet", "states": "fresh"}, "working_directory": str(tmp_path)}
    assert _overrides(recipe, stored) == stored["overrides"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert _overrides(recipe, stored) == {"trace": str(tmp_path / "game.parquet"), "states": "fresh"}
    stored["overrides"]["trace"] = "sample:app-start"
    assert _overrides(recipe, stored) == stored["overrides"]
