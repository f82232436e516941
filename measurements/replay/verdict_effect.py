"""The effect of the host that a verdict estimates, against the truth.

    .venv/bin/python -m measurements.replay.verdict_effect

Replays a sample trace on one simulated drive, on the virtual clock, which no host delays, and several times on the real
clock beside 0, 1 and 2 processes that keep a CPU busy. The truth is the metric on the real clock over that on the
virtual clock. Run as root for real-time priority, as a replay on a drive.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from blkreel.replay.run.directory import RUN_RECORDS
from blkreel.traces.format.metadata_types import Run

COMMAND = Path(sys.executable).with_name("blkreel")
DRIVE = "nil:64GiB,channels=4,read_latency=150us,read_bandwidth=1GB/s"
PATHS = {"read_wait": ("read", "wait_ns"), "read_p50": ("read", "latency", "p50_ns"),
         "read_p99": ("read", "latency", "p99_ns"), "read_response_p99": ("read", "response", "p99_ns"),
         "load_time": ()}
COMPARED = {"original": ("read_wait", "read_p50", "read_p99", "read_response_p99"),
            "dependent": ("load_time", "read_p99")}


def replay(directory: Path, pace: str, clock: str) -> dict:
    subprocess.run([COMMAND, "replay", "sample:game-load", "--on", f"{DRIVE},clock={clock}", "--idle", "cap=5ms",
                    "--pace", pace, "-o", directory, "--no-live"], check=False, capture_output=True)
    assert (directory / RUN_RECORDS).is_file()
    report = subprocess.run([COMMAND, "report", directory, "--json"], check=True, capture_output=True, text=True)
    return json.loads(report.stdout)["entry"]


def value(entry: dict, key: str) -> float | None:
    run = entry["runs"][0]
    if key == "load_time":
        return Run.of(run).load_time_ns
    if key == "read_wait":
        return run["run"]["reads"]["wait_ns"]
    node = run["figures"]
    for part in PATHS[key]:
        node = node.get(part) or {}
    return node or None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=2, help="runs for each load and pace")
    parser.add_argument("--pace", choices=COMPARED, help="only this one")
    options = parser.parse_args()
    print("| pace | load processes | verdict | metric | estimate | truth |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as root:
        os.environ["BLKREEL_STATE_DIR"] = f"{root}/state"
        for pace, keys in COMPARED.items():
            if options.pace not in (None, pace):
                continue
            ideal = replay(Path(root, f"{pace}-virtual"), pace, "virtual")
            for load in (0, 1, 2):
                busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
                try:
                    runs = [replay(Path(root, f"{pace}-{load}-{number}"), pace, "real")
                            for number in range(options.repeat)]
                finally:
                    for process in busy:
                        process.kill()
                        process.wait()
                for entry in runs:
                    show(pace, load, entry, ideal, keys)


def show(pace: str, load: int, entry: dict, ideal: dict, keys: tuple[str, ...]) -> None:
    run = entry["runs"][0]["run"]
    for key in keys:
        before, after, effect = value(ideal, key), value(entry, key), run["host_effect"]["metrics"].get(key)
        if before and after and effect:
            print(f"| {pace} | {load} | {run['verdict']['level']} | {key} | {effect['effect'] * 100:+.1f} % "
                  f"({effect['level']}) | {(after / before - 1) * 100:+.1f} % |", flush=True)


if __name__ == "__main__":
    main()
