import fcntl
import tempfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module", autouse=True)
def one_demo_at_a_time():
    """The emulated drive of a demo has one name on the machine; another worker may run one meanwhile."""
    with open(Path(tempfile.gettempdir()) / "blkreel-tests-demo.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
