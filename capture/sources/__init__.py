"""The sources of a capture's rows, and the choice among them. sources/source.py is their interface."""

from collections.abc import Callable

from blkreel.capture.drives import refuse_multipath, refuse_zoned
from blkreel.capture.options import CaptureOptions
from blkreel.common.device import Drive
from blkreel.common.errors import BlkreelError, UsageError, did_you_mean
from blkreel.traces.spool.spool import Spool

from . import blktrace, bpftrace, ftrace
from .source import Source

SOURCES = ("bpf", "ftrace", "blktrace", "bpftrace")  # in the order of preference
_CLASSES: dict[str, Callable[[list[Drive], Spool, int, Callable[[], None], Callable[[str], None]], Source]] = {
    "ftrace": ftrace.Ftrace, "blktrace": blktrace.Blktrace, "bpftrace": bpftrace.Bpftrace}


def candidates(options: CaptureOptions) -> tuple[str, ...]:
    """The sources to try, in this order.

    Raises UsageError for an unknown source, and for one that does not support a given option.
    """
    wanted, needs_bpf = options.source, _option_of_bpf_only(options)
    if wanted not in ("auto", *SOURCES):
        raise UsageError(f"no such source: {wanted}",
                         did_you_mean(wanted, SOURCES, f"sources are: auto, {', '.join(SOURCES)}"))
    if wanted == "auto":
        return ("bpf",) if needs_bpf else SOURCES
    if wanted != "bpf" and needs_bpf:
        what = "how a volume splits an I/O" if needs_bpf == "--layer volume" else "the process of an I/O"
        raise UsageError(f"{wanted} does not record {what}, so {needs_bpf} does not work with it",
                         "leave it out, or take --source bpf")
    return (wanted,)


def none_can_run(refused: dict[str, BlkreelError]) -> BlkreelError:
    """The error of the candidates, by name."""
    first = next(iter(refused.values()))
    if len(refused) == 1:
        return first
    reasons = ", ".join(f"{name}: {error.message}" for name, error in refused.items())
    return BlkreelError(f"no source can run here ({reasons})", first.remedy)


def _option_of_bpf_only(options: CaptureOptions) -> str | None:
    """The given option that no other source supports."""
    bpf_options = {"--pid": options.pid is not None, "--cgroup": options.cgroup is not None,
                   "--workload-only": options.own_only, "--files": options.files,
                   "--private": options.private, "--layer volume": options.layer == "volume"}
    return next((option for option, is_given in bpf_options.items() if is_given), None)


def start(name: str, drives: list[Drive], options: CaptureOptions, spool: Spool, on_change: Callable[[], None],
          notice: Callable[[str], None]) -> Source:
    """Begin to record by a source other than bpf, which the session starts (helper.py).

    Raises BlkreelError, with the remedy, if it cannot run.
    """
    refuse_multipath(drives, name)
    refuse_zoned(drives, name)
    if name == "blktrace" and (options.keep_ns is not None or options.max_bytes is not None):
        raise UsageError("blktrace hands over its events at its end, so it cannot hold only the last part",
                         "take --source bpf or ftrace")
    return _CLASSES[name](drives, spool, options.ring_bytes, on_change, notice)
