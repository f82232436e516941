"""The interface between a capture and the source of its rows."""

from typing import Protocol, TypedDict

from blkreel.traces.spool.rows_child import Attached, Totals


class ThreadNames(TypedDict):
    """names: all that the thread has had."""

    pid: int
    comm: str
    process: str
    names: list[str]


class Source(Protocol):
    """A running source. It writes rows into the spool.

    attached: None until rows can come. end: None before the end. error: the reason why it ended by itself or could not
    end well; with `died` its rows are kept. The source calls on_change() in another thread after each change of these.
    reports_late: events and lost are 0 before the end. threads: names that are not beside the rows, by tid.
    """

    reports_late: bool
    attached: Attached | None
    end: Totals | None
    error: Exception | None
    died: bool
    threads: dict[int, ThreadNames]

    @property
    def events(self) -> int: ...

    @property
    def lost(self) -> int: ...

    def stop(self) -> None:
        """End the recording and wait for the last row."""
