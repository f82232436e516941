"""The progress of a test: told to nobody."""

from contextlib import contextmanager


class Task:
    def update(self, done, detail=""):
        pass


@contextmanager
def progress(step, total=None):
    yield Task()
