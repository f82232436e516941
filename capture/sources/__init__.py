"""The sources of a capture's rows, and the choice among them. sources/source.py is their interface."""

from collections.abc import Callable

from blkreel.capture import helper
from blkreel.capture.drives import refuse_multipath
from blkreel.capture.options import CaptureOptions
from blkreel.common.device import Drive
from blkreel.common.errors import BlkreelError, UsageError, did_you_mean
from blkreel.traces.spool.rows_child import ChildKilled
from blkreel.traces.spool.spool import Spool

from . import blktrace, bpftrace, ftrace
from .source import Source

SOURCES = ("bpf", "ftrace", "blktrace", "bpftrace")  # in the order of preference
_PROBES = {"ftrace": ftrace.probe, "blktrace": blktrace.probe, "bpftrace": bpftrace.probe}
_CLASSES: dict[str, Callable[[list[Drive], Spool, int, Callable[[], None], Callable[[str], None]], Source]] = {
    "ftrace": ftrace.Ftrace, "blktrace": blktrace.Blktrace, "bpftrace": bpftrace.Bpftrace}


def choose(wanted: str, drives: list[Drive], options: CaptureOptions) -> tuple[str, str]:
    """The source and the reason for it. Raises BlkreelError if none can run, or not the wanted one."""
    needs_bpf = _option_of_bpf_only(options)
    if wanted not in ("auto", "bpf") and needs_bpf:
        raise UsageError(f"{wanted} does not record the process of an I/O, so {needs_bpf} does not work with it",
                         "leave it out, or take --source bpf")
    if wanted != "auto":
        probe(wanted, drives, options)
        return wanted, "as asked for"
    refused: list[tuple[str, BlkreelError]] = []
    for name in ("bpf",) if needs_bpf else SOURCES:
        try:
            probe(name, drives, options)
        except ChildKilled:
            raise
        except BlkreelError as error:
            refused.append((name, error))
            continue
        return name, "; ".join(f"{other} cannot run: {error.message}" for other, error in refused)
    first = refused[0][1]
    if needs_bpf:
        raise first
    others = ", ".join(f"{name}: {error.message}" for name, error in refused)
    raise BlkreelError(f"no source can run here ({others})", first.remedy)


def _option_of_bpf_only(options: CaptureOptions) -> str | None:
    """The given option that no other source supports."""
    given = {"--pid": options.pid is not None, "--cgroup": options.cgroup is not None,
             "--workload-only": options.own_only, "--files": options.files,
             "--private": options.private}
    return next((option for option, is_given in given.items() if is_given), None)


def probe(name: str, drives: list[Drive], options: CaptureOptions) -> None:
    """Raises BlkreelError, with the remedy, where a source cannot run."""
    if name == "bpf":
        helper.probe(options.programs)
    elif name in _PROBES:
        refuse_multipath(drives, name)
        _PROBES[name](drives)
    else:
        raise UsageError(f"no such source: {name}",
                         did_you_mean(name, SOURCES, f"sources are: auto, {', '.join(SOURCES)}"))


def start(name: str, drives: list[Drive], options: CaptureOptions, spool: Spool, on_change: Callable[[], None],
          notice: Callable[[str], None]) -> Source:
    """Begin to record by a source other than bpf, which the session starts (helper.py)."""
    if name == "blktrace" and (options.keep_ns is not None or options.max_bytes is not None):
        raise UsageError("blktrace hands over its events at its end, so it cannot hold only the last part",
                         "take --source bpf or ftrace")
    return _CLASSES[name](drives, spool, options.ring_bytes, on_change, notice)
