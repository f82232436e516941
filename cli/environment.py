"""Environment variables that a library reads when it is imported."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def environment_variable(name: str, value: str, *, force: bool = False) -> Iterator[None]:
    """Set it during the block only, because a captured command gets the environment of the user.

    force: also in place of a value that the user has set.
    """
    before = os.environ.get(name)
    if force or before is None:
        os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
