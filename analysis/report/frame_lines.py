"""Stutters and the I/O that they waited for, in the terminal."""

from collections.abc import Mapping
from typing import Any

from blkreel.common.text_table import shortened, wrapped
from blkreel.common.units import duration

MOST_STUTTERS = 6
CAUSE_WORDS = {"io": "I/O", "other": "not I/O", "unclear": "unclear"}


def frame_lines(frames: Mapping[str, Any], everything: bool, width: int) -> list[str]:
    """The answer, the worst stutters or all of them, and how sure it is. frames: of the document."""
    lines = wrapped(frames["sentence"], width)
    stutters = sorted(frames["stutters"], key=lambda stutter: -stutter["time_ns"])
    listed = stutters if everything else stutters[:MOST_STUTTERS]
    lines += [f"  {shortened(stutter_words(stutter), width - 2)}" for stutter in
              sorted(listed, key=lambda stutter: int(stutter["start_ns"]))]
    if len(listed) < len(stutters):
        lines.append(f"  not shown: {len(stutters) - len(listed)} shorter stutters (--all)")
    return lines + [line for note in frames["notes"] for line in wrapped(f"  {note}", width)] + [""]


def stutter_words(stutter: Mapping[str, Any]) -> str:
    """`12.345 s: frame of 166 ms, I/O: 148 ms, level1.pak by loader`."""
    words = (f"{stutter['start_ns'] / 1e9:.3f} s: frame of {duration(stutter['time_ns'])}, "
             f"{CAUSE_WORDS[stutter['cause']]}")
    if stutter["waits"] and stutter["cause"] == "io":
        words += f": {duration(stutter['lost_ns'])}, {wait_words(stutter['waits'][0])}"
    if stutter["other_time_ns"] is not None and stutter["cause"] == "io":
        words += f"; {duration(stutter['other_time_ns'])} on the other drive"
    return words


def wait_words(wait: Mapping[str, Any]) -> str:
    """`read of level1.pak by loader`: the operation, the file or the place, the thread."""
    place = wait["path"].rpartition("/")[2] if wait["path"] else f"offset {wait['offset_bytes']:,}"
    return f"{wait['op'] or 'I/O'} of {place} by {wait['thread'] or 'thread ' + str(wait['tid'])}"
