"""The program of the demo and the data it reads: it runs from its own libraries, and reads all of the dataset."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from blkreel.cli.demo import application as demo_application
from blkreel.cli.demo.program import make_dataset

COUNTERS = "5 0 80 0 7 0 {} 0\n"  # as `stat` of a drive in /sys: reads, merged, sectors, ms, and the same of writes


@pytest.fixture
def dataset(tmp_path):
    make_dataset(tmp_path / "dataset", 1 << 20)
    return tmp_path / "dataset"


def run_program(libraries, dataset, counters):
    return subprocess.run([sys.executable, "-I", "-S", "-B", demo_application.__file__, libraries, dataset, counters],
                          capture_output=True, text=True)


def test_the_program_prints_the_mean_of_all_rows_and_its_time(dataset, tmp_path):
    (tmp_path / "stat").write_text(COUNTERS.format(16))
    result = run_program(Path(pa.__file__).parent.parent, dataset, tmp_path / "stat")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    latencies = ds.dataset(dataset).to_table(columns=["latency"])["latency"].to_numpy()
    assert document["mean"] == pytest.approx(float(np.mean(latencies)))
    assert document["seconds"] > 0 and document["written_bytes"] == document["read_bytes"] == 0


def test_the_program_does_not_fall_back_to_other_libraries(dataset, tmp_path):
    (tmp_path / "empty").mkdir()
    result = run_program(tmp_path / "empty", dataset, tmp_path / "stat")
    assert result.returncode != 0
    assert "No module named 'pyarrow'" in result.stderr


def test_the_dataset_has_the_size_asked_for(tmp_path):
    rows = make_dataset(tmp_path / "dataset", 120_000_000)
    files = list((tmp_path / "dataset").iterdir())
    assert 120e6 <= sum(file.stat().st_size for file in files) + 32 * len(files) < 125e6
    assert ds.dataset(tmp_path / "dataset").count_rows() == rows
