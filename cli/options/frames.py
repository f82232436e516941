"""Options that join frame times with a trace."""

import functools
from pathlib import Path
from typing import Any

import click

from blkreel.analysis.frames.document import FrameOptions

from . import completion, types
from .report import TRACE
from .types import CommandFunction, add_options

_OPTIONS = (
    click.option("--frames", type=click.Path(readable=False, path_type=Path), metavar="FILE",
                 help="Show which frames waited for which I/O. FILE: frame times by MangoHud, PresentMon or CapFrameX "
                      "of the captured application (docs/reports.md)."),
    click.option("--frames-run", "run", type=TRACE, metavar="RUN", shell_complete=completion.traces,
                 help="Show which stutters would be gone on the drive of RUN, a replay of the trace at dependent "
                      "pace."),
    click.option("--frames-start", "start_ns", type=types.TIME_NS, metavar="TIME",
                 help="Time in the trace at which the clock of the frame log is 0. [default: from the file]"),
    click.option("--frames-process", "process", metavar="NAME",
                 help="Name or pid of the process that renders. [default: from the file, else the captured command]"),
)


def frame_options(command: CommandFunction) -> CommandFunction:
    """Add the options; the command gets them as one argument `frames`, None without --frames."""
    @functools.wraps(command)
    def with_frames(*arguments: Any, frames: Path | None, **parameters: Any) -> Any:
        own = {name: parameters.pop(name) for name in ("run", "start_ns", "process")}
        return command(*arguments, frames=None if frames is None else FrameOptions(frames, **own), **parameters)

    return add_options(with_frames, _OPTIONS)
