"""The application copy: that it is the whole application, and nothing that was not asked for."""

import subprocess
import sys

import pyarrow.dataset as ds
import pytest

from blkreel.cli.demo import application as demo_application
from blkreel.cli.demo.source import copy_application, make_dataset


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    directory = tmp_path_factory.mktemp("source") / "libraries"
    copy_application(directory)
    make_dataset(directory.parent / "dataset", 1 << 20)
    return directory


def run_launch(libraries, name):
    return subprocess.run([sys.executable, "-I", "-S", "-B", demo_application.__file__, libraries, name,
                           libraries.parent / "dataset"], capture_output=True, text=True)


@pytest.mark.parametrize("name", ["dataframes", "scan", "chart"])
def test_each_launch_runs_from_the_copy_alone(libraries, name):
    result = run_launch(libraries, name)
    assert result.returncode == 0, result.stderr


def test_a_launch_does_not_fall_back_to_the_installed_libraries(tmp_path):
    (tmp_path / "empty").mkdir()
    result = run_launch(tmp_path / "empty", "dataframes")
    assert result.returncode != 0
    assert "No module named 'pandas'" in result.stderr


def test_the_copy_leaves_the_build_tools_behind(libraries):
    present = {entry.name for entry in libraries.iterdir()}
    assert {"pandas", "numpy", "pyarrow", "rich", "vl_convert"} <= present
    assert not {"mesonbuild", "pip", "blkreel"} & present


def test_the_dataset_has_the_size_asked_for(tmp_path):
    rows = make_dataset(tmp_path / "dataset", 4 << 20)
    found_bytes = sum(file.stat().st_size for file in (tmp_path / "dataset").iterdir())
    assert 4 << 20 <= found_bytes < 5 << 20
    assert ds.dataset(tmp_path / "dataset").count_rows() == rows
