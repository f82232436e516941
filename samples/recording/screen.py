"""A screen that nobody sees. With SAMPLES_SCREENSHOTS=DIR, a picture of it goes there every three seconds."""

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from blkreel.common.errors import BlkreelError

_EVERY_S = 3.0


@contextmanager
def screen(environment: Mapping[str, str], size: str = "640x480") -> Iterator[dict[str, str]]:
    """Yields what the environment of a program has that is to be seen there. environment: of the screen itself.

    Drawn by the processor: a machine without graphics does.
    """
    reads, writes = os.pipe()
    server = subprocess.Popen(["Xvfb", "-displayfd", str(writes), "-screen", "0", f"{size}x24", "-nolisten", "tcp"],
                              pass_fds=[writes], env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(writes)
    stopped = threading.Event()
    try:
        with open(reads) as pipe:
            number = pipe.readline().strip()
        if not number:
            raise BlkreelError("Xvfb does not start", "apt-get install xvfb")
        display = f":{number}"
        if directory := os.environ.get("SAMPLES_SCREENSHOTS"):
            threading.Thread(target=_take_pictures, args=(display, Path(directory), stopped), daemon=True).start()
        yield {"DISPLAY": display, "LIBGL_ALWAYS_SOFTWARE": "1"}
    finally:
        stopped.set()
        server.kill()
        server.wait()


def _take_pictures(display: str, directory: Path, stopped: threading.Event) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(10_000):
        if stopped.wait(_EVERY_S):
            return
        subprocess.run(["import", "-display", display, "-window", "root", directory / f"{number:04}.png"])
