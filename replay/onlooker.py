"""Who looks on while the engine works: a task of progress may take more than its update()."""


def watchers(task) -> tuple:
    """take_rows(rows), take_note(note) and take_telemetry(values) of a task; where it has none, nothing is done.

    rows, note: as run_engine gives them. values: what sensors told last, by their names in the run's telemetry.
    """
    return tuple(getattr(task, name, _unwatched) for name in ("take_rows", "take_note", "take_telemetry"))


def _unwatched(_) -> None:
    """Nobody looks on."""
