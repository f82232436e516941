"""Where a capture's rows come from: one interface, one result.

A source has
    attached    None until rows can come, then {"source_format", "epoch_ns", "realtime_ns", "clock_resolution_ns",
                "capture_layer", "queue_time_source"}
    end         None before the end, then the totals as the capture helper gives them; what it cannot count is None
    error       why it ended unasked, or could not end well; died: by its own end, with its rows kept
    events, lost, progress, threads
    stop()      end the capture, wait for the last row
It writes its rows into the spool, and calls on_change() in a thread of its own after each change of the first three.
"""

from collections.abc import Callable

from blkreel.traces.errors import BlkreelError, UsageError
from blkreel.traces.rows_child import ChildKilled

from .. import helper
from . import blktrace, bpftrace, ftrace

SOURCES = ("bpf", "ftrace", "blktrace", "bpftrace")  # in the order of preference
_OTHERS = {"ftrace": ftrace, "blktrace": blktrace, "bpftrace": bpftrace}
_CLASSES = {"ftrace": ftrace.Ftrace, "blktrace": blktrace.Blktrace, "bpftrace": bpftrace.Bpftrace}


def choose(wanted: str, drives, options) -> tuple[str, str]:
    """The source to take, and in a line why. Raises BlkreelError where none can run, or the wanted one cannot."""
    needs_bpf = _of_bpf_only(options)
    if wanted not in ("auto", "bpf") and needs_bpf:
        raise UsageError(f"{wanted} does not know whose an I/O is, so there is no {needs_bpf} with it",
                         "leave it out, or take --source bpf")
    if wanted != "auto":
        probe(wanted, drives, options)
        return wanted, "as asked for"
    refused = []
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


def _of_bpf_only(options) -> str | None:
    """The option that is asked for and that no other source can fulfil."""
    asked = {"--pid": options.pid is not None, "--cgroup": options.cgroup is not None,
             "--own-only": options.own_only, "--files": options.files}
    return next((option for option, is_asked in asked.items() if is_asked), None)


def probe(name: str, drives, options) -> None:
    """Raises BlkreelError, with what mends it, where a source cannot run."""
    if name == "bpf":
        helper.probe(options.programs)
        return
    if name not in _OTHERS:
        raise UsageError(f"no such source: {name}", f"sources are: auto, {', '.join(SOURCES)}")
    _OTHERS[name].probe(drives)


def start(name: str, drives, options, spool, on_change: Callable[[], None], notice: Callable[[str], None]):
    """Begin to record. The source named bpf is the session's own (helper.py)."""
    if name == "blktrace" and (options.keep_ns is not None or options.max_bytes is not None):
        raise UsageError("blktrace gives its events when it ends: nothing of them can be held as the last",
                         "take --source bpf or ftrace")
    return _CLASSES[name](drives, spool, options.ring_bytes, on_change, notice)
