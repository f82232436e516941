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


def only_unseen(returncode, stderr):
    """Whether all that a capture lacks are completions that the kernel kept from BPF: how many these are, is the
    machine's affair (none runs in an interrupt of a process that the kernel shields). A test that needs them says so.
    """
    told = [line for line in stderr.splitlines() if "not complete:" in line]
    return returncode == 3 and bool(told) and all("the kernel runs no BPF program" in line for line in told)


def assert_recorded(returncode, stderr, source="bpf"):
    """Nothing else is missing. From bpftrace the kernel keeps other events too, and the capture then ends with 3."""
    assert returncode == 0 or only_unseen(returncode, stderr) or (source == "bpftrace" and returncode == 3), stderr
