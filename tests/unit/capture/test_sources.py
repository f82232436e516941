"""The choice of a source."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from blkreel.capture.options import CaptureOptions
from blkreel.capture.sources import SOURCES, bpftrace, candidates
from blkreel.capture.sources.bpftrace_events import EventLines
from blkreel.capture.sources.tracefs import refuse_where_taken
from blkreel.common.errors import BlkreelError, UsageError


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


@pytest.mark.parametrize("tracer, taken", [("nop", False), ("function", False), ("blk", True)])
def test_blktrace_is_refused_where_the_tracer_takes_its_events(tmp_path, tracer, taken):
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b/current_tracer").write_text(f"{tracer}\n")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"proc /proc proc rw 0 0\nnodev {tmp_path}/a\\040b tracefs rw,relatime 0 0\n")
    with pytest.raises(BlkreelError, match="blktrace.*blk") if taken else nullcontext():
        refuse_where_taken(mounts)


@pytest.mark.parametrize("mounted", ["", "tracefs", "debugfs"])
def test_bpftrace_without_tracepoints_names_the_mount(tmp_path, monkeypatch, mounted):
    """It says only that a tracepoint was not found."""
    monkeypatch.setattr(bpftrace, "require", lambda *names: "bpftrace")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    mounts = tmp_path / "mounts"
    mounts.write_text(f"nodev /sys/kernel/x {mounted or 'proc'} rw 0 0\n")
    with nullcontext() if mounted else pytest.raises(BlkreelError, match="tracefs is not mounted"):
        bpftrace.probe([], mounts)


def test_bpftrace_gives_a_split_its_second_part_in_the_byte_order_of_blktrace():
    """Without it, the second part has the time and thread of its request, not of its entry."""
    events = EventLines(1000, 1000)
    events.take(b"X 2000 0 77 8388608 96 2144 WS\n")
    assert events.ready(all_of_it=True)[-8:] == (2144).to_bytes(8, "big")
