"""The choice of a source."""

from pathlib import Path

import pytest

from blkreel.capture.options import CaptureOptions
from blkreel.capture.sources import SOURCES, candidates
from blkreel.common.errors import UsageError


def options(source, **given):
    return CaptureOptions(output=Path("t.parquet"), devices=["/dev/loop0"], source=source, **given)


@pytest.mark.parametrize("source", [name for name in SOURCES if name != "bpf"])
@pytest.mark.parametrize("name, given", [("--files", {"files": True}), ("--workload-only", {"own_only": True}),
                                         ("--pid", {"pid": 1}), ("--cgroup", {"cgroup": "/x"}),
                                         ("--private", {"private": True}), ("--layer volume", {"layer": "volume"})])
def test_what_only_bpf_records_is_refused_for_other_sources(source, name, given):
    with pytest.raises(UsageError, match=f"{source} .* so {name} does not work with it"):
        candidates(options(source, **given))
    assert candidates(options("auto", **given)) == ("bpf",)
    assert candidates(options(source)) == (source,)
