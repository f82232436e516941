"""The sources of a capture that can run on this machine."""

import pytest

from blkreel.capture import helper
from blkreel.capture.sources import blktrace, bpftrace, ftrace
from blkreel.common.device import drive_of
from blkreel.common.errors import BlkreelError

_PROBES = {"bpf": lambda drives: helper.probe(), "ftrace": ftrace.probe, "blktrace": blktrace.probe,
           "bpftrace": bpftrace.probe}


def probe(name, drive):
    _PROBES[name]([drive_of(drive)])


def skip_unless_it_runs(name, drive):
    try:
        probe(name, drive)
    except BlkreelError as error:
        pytest.skip(f"{name} cannot run here: {error}")


def assert_recorded(source, returncode, stderr):
    """The kernel may keep a few events from bpftrace, and the capture then ends with 3."""
    assert returncode in ((0, 3) if source == "bpftrace" else (0,)), stderr
