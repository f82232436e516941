"""Documents beside runs, of tests, drives and captures, damaged in every key: none ends a command by a stack."""

import json

import numpy as np
from cases import is_fuzzing
from damaged import each_damage, outcome
from emulated_accounts import account
from small_trace import new_trace
from synthetic_catalog import run_of
from synthetic_fleet import small_test
from synthetic_runs import write_run

from blkreel.benchmarks.runner.record import read_resumable
from blkreel.capture.sources.tracefs import Settings
from blkreel.cli.options import completion_table
from blkreel.common import emulated
from blkreel.common.errors import BlkreelError
from blkreel.replay.drive import late_writes
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.target import find_target
from blkreel.replay.run import calibrate
from blkreel.replay.simulated import state as simulated_state
from blkreel.traces.format.overrides import amend
from blkreel.traces.format.reader import open_trace

FEW_WRONG = [None, "x", 1 << 70, [None]]
TELEMETRY = {"power": {"meter": "m", "average_w": 5.0, "energy_j": 5.0, "gaps": 0, "covered_ns": 10, "rail": "drive"},
             "temperature_c": {"start": 5.0, "max": 6.0, "end": 6.0}, "throttled": 0, "link": {"least_width": 4.0},
             "smart": {"changed": {"x": 1.0}, "critical_warning": 0, "writes": {
                 "unit": "B", "host": 4, "media": 5, "host_step": 1, "media_step": 1}},
             "drives": None, "missing": {}, "notes": {}}
AMENDED = {"telemetry": TELEMETRY, "lateness": {"p50_ns": 1, "p99_ns": 2, "max_ns": 3, "queue_full_ops": 0},
           "host_effect": {"limits": {"accepted": 0.02}, "headline": [], "queue": None, "metrics": {
               "read_wait": {"effect": 0.1, "level": "accepted", "schedule": 0.1, "best_case": 0.1}}},
           "background": [{"words": "writes", "asked_bytes_s": 1e6, "reached_bytes_s": 1e6, "reached_share": 1.0,
                           "outstanding_share": 0.5, "latency_p50_ns": 5, "latency_p99_ns": 5}],
           "environment": {"blkreel": "0.1.0", "link": {"speed_gts": 8.0, "width": 4.0}},
           "zero_latency": {"load_time_ns": 5}, "reads": {"load_time_ns": 5, "wait_ns": 5}, "without": ["writes"],
           "baseline": {"path": "baseline", "without": ["writes"], "load_time_ns": 5, "read_wait_ns": 5,
                        "verdict": "valid", "slowdown": {"read_wait": 1.5, "load_time": 2.0}},
           "compute_curve": [{"compute": 1, "load_time_ns": 5}, {"compute": "none", "load_time_ns": 0}],
           "pace": {"name": "dependent", "depth": None, "compute": 1, "streams": {"1": {"name": "depth", "depth": 4}}}}


def test_amended_values_of_a_run(tmp_path):
    run = write_run(tmp_path / "run", seconds=1)
    path = run / "amended.json"
    amend(open_trace(run), open_trace(run).metadata["run"] | AMENDED, "a test")
    assert outcome("report", run) is None
    for _ in each_damage(path, wrong=FEW_WRONG):
        message = outcome("info", run)  # both read it alike, and a report then uses it
        assert message is None or str(path) in message
        assert message or outcome("report", run) is None


def test_a_test(tmp_path):
    test = small_test(tmp_path / "test", "trace")
    path = test / "test.json"
    whole = json.loads(path.read_text())
    whole["steps"] = whole["steps"][:1]
    for _ in each_damage(path, whole, FEW_WRONG):
        for words in (("report", test), ("results", "add", test, "--catalog", tmp_path / "catalog")):
            message = outcome(*words)
            assert message is None or str(test) in message


def test_a_test_to_be_resumed(tmp_path):
    path = tmp_path / "test.json"
    step = {"id": "1", "do": "rest", "status": "waiting", "title": "t", "role": "r", "labels": {}, "directory": None,
            "started_at": None, "ended_at": None, "result": None, "error": None, "interrupted": 0}
    whole = {"version": 1, "test": "t", "overrides": {"a": "b"}, "recipe": {"sha256": "a", "text": "b"}, "quick": False,
             "scale": 1.0, "seed": 1, "device": "nil:1GiB", "erase": "none", "label": "l", "ended_at": None,
             "drive": {"serial_hash": "", "size_bytes": 5, "path": "p", "model": "m", "backing_file": ""},
             "payload": {"compressible_percent": 0, "duplicates_percent": 0}, "steps": [step],
             "telemetry": {"sample_hz": 2.0, "power_command": None, "power_log": None, "power_sensor": None}}
    path.write_text(json.dumps(whole))
    assert read_resumable(tmp_path)[0] == whole
    accepted = 0
    for _ in each_damage(path, whole, FEW_WRONG):
        try:
            read_resumable(tmp_path)
            accepted += 1
        except BlkreelError as error:
            assert str(path) in str(error)
    assert accepted == (40 if is_fuzzing() else 9)  # another text in place of a text


def test_the_state_of_a_drive(tmp_path, monkeypatch):
    monkeypatch.setenv("BLKREEL_STATE_DIR", str(tmp_path / "state"))
    image = tmp_path / "drive.img"
    image.write_bytes(bytes(1 << 20))
    assert outcome("precondition", image, "--state", "full", "--erase", "none") is None
    target = find_target(image)
    state = drive_state.file_of(target)
    late_writes.begin(target)
    for path in (state, state.with_suffix(".writing")):
        for _ in each_damage(path):
            assert drive_state.load(target).name in (None, "full", "x")
            assert late_writes.late_writer(target) is None


def test_the_state_of_a_simulated_drive(tmp_path, monkeypatch):
    monkeypatch.setenv("BLKREEL_STATE_DIR", str(tmp_path / "state"))
    new_trace(tmp_path / "t.parquet", drive_bytes=1 << 20, submit_ns=np.arange(4) * 1000)
    drive = "nil:1GiB,read_latency=90us,clock=virtual,state=keep"
    replay = ("replay", tmp_path / "t.parquet", "--on", drive, "-o", tmp_path / "run", "--force")
    outcome(*replay)
    (path,) = (tmp_path / "state/simulated").glob("*.json")
    whole = json.loads(path.read_text())
    simulated = find_target(drive).simulated
    for _ in each_damage(path):
        simulated_state.load(simulated)
    for mapped in ("x", "F", "f" * 100_000):
        path.write_text(json.dumps({**whole, "state": {**whole["state"], "mapped": mapped}}))
        assert outcome(*replay) is None


def test_repetitions_of_a_replay(tmp_path):
    run_of(tmp_path / "source")
    replay = ("replay", tmp_path / "source", "--on", "nil:1GiB", "--repeat", "1", "-o", tmp_path / "runs")
    assert outcome(*replay) is None
    path = tmp_path / "runs/repetitions.json"
    whole = json.loads(path.read_text())
    whole["settings"] = {name: whole["settings"][name] for name in ("on", "trace", "pace")}
    for _ in each_damage(path, whole):
        message = outcome(*replay)
        assert message and str(tmp_path / "runs") in message


def test_the_account_of_an_emulated_drive(tmp_path):
    (tmp_path / "sata").mkdir()
    path = emulated.account_file("sata", tmp_path)
    whole = account()
    for _ in each_damage(path, whole):
        read = emulated.read_account("sata", tmp_path)
        if read is not None:
            assert list(emulated.reasons([emulated.use_between(whole, read)])) is not None


def test_settings_of_ftrace_that_a_killed_capture_left(tmp_path):
    setting = tmp_path / "tracing_on"
    for _ in each_damage(tmp_path / "state.json", [[str(setting), "0"]]):
        setting.write_text("1")
        Settings(tmp_path / "state.json").close()
        assert setting.read_text() in ("0", "1", "x", "-1")
    (tmp_path / "state.json").write_text(json.dumps([[str(setting), "0"]]))
    Settings(tmp_path / "state.json").close()
    assert setting.read_text() == "0"


CALIBRATION = {"version": 1, "cpu_model": calibrate.cpu_model(), "faithful_iops": {"read": 5000}}


def test_a_calibration(tmp_path, monkeypatch):
    monkeypatch.setenv("BLKREEL_STATE_DIR", str(tmp_path))
    whole = {**CALIBRATION, **{name: None for name in calibrate.Calibration.__annotations__ if name not in CALIBRATION}}
    for _ in each_damage(tmp_path / "calibration.json", whole):
        calibrate.warning_for(1000, 10**9)


def test_the_table_of_completion(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    completion_table.table.cache_clear()
    built = completion_table.table()
    path = tmp_path / "blkreel/completion.json"
    monkeypatch.setattr(completion_table, "_commands", lambda: built["commands"])
    monkeypatch.setattr(completion_table, "_values", lambda: built["values"])
    whole = json.loads(path.read_text())
    small = {"key": whole["key"], "commands": {"replay": whole["commands"]["replay"][:1]},
             "values": {**whole["values"], "parameters": {"qd1": []}}}
    for _ in each_damage(path, small):
        completion_table.table.cache_clear()
        table = completion_table.table()
        assert table["commands"].keys() == built["commands"].keys() and table["values"].keys() == built["values"].keys()
    completion_table.table.cache_clear()
