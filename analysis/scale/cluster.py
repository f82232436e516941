"""A runner of the workers of a Dask cluster. They read, and send partials back; they write nothing."""

import importlib.metadata
import logging
import queue
import time
import uuid
import warnings
from collections.abc import Sequence
from typing import Any, Self

from blkreel import __version__
from blkreel.common.errors import BlkreelError, TraceError, UsageError

from .runner import Part, Results, RowsOfPart, Task, bytes_of

CONNECT_S = 10
# Limit of the time without any worker: a nanny needs some seconds to start another.
NO_WORKER_S = 30
_LOOK_S = 1.0


class Cluster:
    """A runner on the address of a scheduler (tcp://HOST:8786).

    A part whose worker died is done by another; Dask stops after three. Raises BlkreelError for a missing package, a
    scheduler that does not answer, workers without blkreel or with another version.
    """

    figures = staticmethod(bytes_of)

    def __init__(self, address: str):
        self._address = address
        self._futures: dict[Any, int] = {}
        self._done: queue.Queue[Any] = queue.Queue()
        self._client: Any = None
        self.parallel = 1

    def __enter__(self) -> Self:
        try:
            import distributed
        except ImportError as error:
            raise BlkreelError("a cluster needs the package distributed", "pip install distributed") from error
        self._distributed = distributed
        # Lost connections come back as states of tasks, with error messages of our own.
        self._log = logging.getLogger("distributed")
        self._log_level = self._log.level
        self._log.setLevel(logging.CRITICAL)
        try:
            self._connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _connect(self) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of versions: ours is checked below
                client: Any = self._distributed.Client
                self._client = client(self._address, timeout=CONNECT_S, set_as_default=False)
        except ValueError as error:
            raise UsageError(f"{self._address} is not the address of a scheduler: {error}",
                             "name it as in tcp://10.0.0.1:8786") from error
        except OSError as error:
            raise BlkreelError(f"no Dask scheduler answers at {self._address}",
                               "start one: dask scheduler; then on each machine: dask worker ADDRESS"
                               ) from error
        try:
            self._client.wait_for_workers(1, timeout=NO_WORKER_S)
        except TimeoutError:
            raise self._no_worker() from None
        self._check_versions()
        self.parallel = max(1, sum(self._client.nthreads().values()))

    def __exit__(self, *exc_info: object) -> None:
        if self._client is not None:
            self._client.cancel(list(self._futures), force=True)
            self._client.close(timeout=2)
            self._client = None
        self._log.setLevel(self._log_level)

    def run(self, function: Task, parts: Sequence[Part], on_rows: RowsOfPart) -> Results:
        waiting, run = list(reversed(range(len(parts)))), uuid.uuid4().hex
        alone_since: float | None = None
        while waiting or self._futures:
            # Few at a time: a scheduler may have many users.
            while waiting and len(self._futures) < 2 * self.parallel + 2:
                index = waiting.pop()
                future = self._client.submit(_on_worker, function, parts[index], pure=False,
                                             key=f"blkreel-{function.__name__}-{run}-{index}")
                self._futures[future] = index
                future.add_done_callback(self._done.put)
            for future in self._ended():
                index = self._futures[future]
                try:
                    result = self._result(future, parts[index])
                except TimeoutError:
                    # Its worker died with the result, and another does it again.
                    future.add_done_callback(self._done.put)
                    continue
                del self._futures[future]
                alone_since = None
                on_rows(index, parts[index].rows)
                yield index, result
                future.release()
            alone_since = self._check_alive(alone_since)

    def _ended(self) -> list[Any]:
        try:
            return [self._done.get(timeout=_LOOK_S)]
        except queue.Empty:
            return []

    def _check_alive(self, alone_since: float | None) -> float | None:
        """Since when the cluster has no worker; None while it has one."""
        if self._client.status != "running":
            raise self._gone()
        if any(future.status == "cancelled" for future in self._futures):
            raise self._gone()
        try:
            threads = sum(self._client.nthreads().values())
        except (OSError, RuntimeError) as error:
            raise self._gone() from error
        if threads:
            self.parallel = threads
            return None
        now = time.monotonic()
        if alone_since is not None and now - alone_since > NO_WORKER_S:
            raise self._no_worker()
        return alone_since or now

    def _result(self, future: Any, part: Part) -> Any:
        if future.status == "cancelled":
            raise self._gone()
        error = future.exception(timeout=NO_WORKER_S)
        if error is None:
            return future.result(timeout=NO_WORKER_S)
        if isinstance(error, BlkreelError):
            return error
        if isinstance(error, self._distributed.KilledWorker):
            return BlkreelError(f"workers of {self._address} died repeatedly while they read {part.location}",
                                "see their logs; give them more memory (dask worker --memory-limit)")
        if isinstance(error, ImportError) and "blkreel" in str(error):
            raise self._lacking(["a worker"])
        raise error

    def _check_versions(self) -> None:
        versions = self._client.run(importlib.metadata.version, "blkreel", on_error="return")
        lacking = [address for address, version in versions.items() if isinstance(version, Exception)]
        if lacking:
            raise self._lacking(lacking)
        mismatches = {address: version for address, version in versions.items() if version != __version__}
        if mismatches:
            address, version = next(iter(mismatches.items()))
            raise BlkreelError(f"{len(mismatches)} of {len(versions)} workers have another blkreel than {__version__}: "
                               f"{address} has {version}", "install one version everywhere")

    def _lacking(self, workers: list[str]) -> BlkreelError:
        more = f" and {len(workers) - 1} more" if len(workers) > 1 else ""
        return BlkreelError(f"{workers[0]}{more} of the cluster {self._address} cannot import blkreel",
                            f"install blkreel {__version__} there, where `dask worker` is started from")

    def _gone(self) -> BlkreelError:
        return BlkreelError(f"the Dask scheduler at {self._address} went away",
                            "start it again, then repeat the command: cached partials are not read again")

    def _no_worker(self) -> BlkreelError:
        return BlkreelError(f"the cluster {self._address} has had no worker for {NO_WORKER_S} s",
                            f"start some: dask worker {self._address}")


def _on_worker(function: Task, part: Part) -> Any:
    """Runs on the worker. Errors name it, because the machine of the user may read this file without one."""
    try:
        return function(part)
    except BlkreelError as error:
        from distributed import get_worker
        message, remedy = f"{error.message} (on the worker {get_worker().address})", error.remedy
        if isinstance(error, TraceError):
            remedy = "workers must see the same files under the same paths: use shared or object storage"
        raise type(error)(message, remedy) from None
