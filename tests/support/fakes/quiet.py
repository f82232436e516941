"""Progress without output."""

from contextlib import contextmanager

from blkreel.common.progress import ProgressTask


@contextmanager
def progress(step, total=None):
    yield ProgressTask()
