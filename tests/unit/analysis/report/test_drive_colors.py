"""A drive keeps the color that drives.toml gives it, in every chart of every page."""

import pytest
from synthetic_runs import write_run

from blkreel.analysis.report import drives_file, export, present
from blkreel.common.errors import UsageError

COLOR = "#13579b"


def test_the_color_of_a_drive_is_that_of_drives_toml(tmp_path):
    path = tmp_path / "drives.toml"
    path.write_text(f'[[drive]]\nmatch = "slow"\ncolor = "{COLOR}"\n')
    runs = [write_run(tmp_path / label, label, us, seconds=3) for label, us in (("fast", 60), ("slow", 300))]
    for name, named in (("own", drives_file.load(path)), ("theme", None)):
        view = export.View("svg", "read-tail", drives_file=named)
        present.compare(runs, tmp_path / f"{name}.svg", view=view)
    own, theme = ((tmp_path / f"{name}.svg").read_text() for name in ("own", "theme"))
    assert COLOR in own and COLOR not in theme
    assert "#0072b2" in own  # of the other drive, from the theme


@pytest.mark.parametrize("color", ["red", "#12345", "#12345g"])
def test_what_is_no_color_is_refused_with_its_line(tmp_path, color):
    path = tmp_path / "drives.toml"
    path.write_text(f'[[drive]]\nmatch = "slow"\ncolor = "{color}"\n')
    with pytest.raises(UsageError, match="drives.toml:3: color = .* is not a color"):
        drives_file.load(path)
