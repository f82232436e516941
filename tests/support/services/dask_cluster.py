"""A Dask cluster of separate processes on this machine, for tests."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from distributed import Client


class LocalCluster:
    """address: of the scheduler. workers: processes, without nannies, so that a killed one stays away."""

    def __init__(self, directory):
        self._directory, self._processes, self.workers = directory, [], []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self._start("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--no-show")

    def add_worker(self, *, environment=None, cwd=None):
        self.workers.append(self._start("worker", self.address, "--no-nanny", "--nthreads", "1", "--no-dashboard",
                                        "--local-directory", str(self._directory), environment=environment, cwd=cwd))

    def wait_for(self, count):
        with Client(self.address, timeout=300, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=300)

    def kill(self, index):
        os.kill(self.workers[index].pid, signal.SIGKILL)
        self.workers[index].wait()

    def _start(self, *arguments, environment=None, cwd=None):
        log = open(self._directory / f"dask-{len(self._processes)}.log", "wb")
        process = subprocess.Popen([Path(sys.executable).with_name("dask"), *arguments], stdout=log, stderr=log,
                                   env={**os.environ, **(environment or {})}, cwd=cwd or self._directory,
                                   start_new_session=True)
        log.close()
        self._processes.append(process)
        return process

    def close(self):
        for process in reversed(self._processes):
            process.terminate()
        deadline = time.monotonic() + 5
        for process in self._processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def cluster(directory, workers):
    directory.mkdir(parents=True, exist_ok=True)
    made = LocalCluster(directory)
    try:
        for _ in range(workers):
            made.add_worker()
        made.wait_for(workers)
        yield made
    finally:
        made.close()
