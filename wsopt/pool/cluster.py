"""Workers of a Dask cluster, on as many machines as it has: https://distributed.dask.org.

Tasks go to the cluster and results come back; nothing else is shared. A worker writes to no cache but its own.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Any, Generic, TypeVar

from wsopt.entries import extended
from wsopt.errors import RequirementError
from wsopt.pool.local import LOCAL
from wsopt.pool.versions import Versions, differences, versions_here
from wsopt.pool.workers import Gathering, Progress, Workers, not_kept, silent
from wsopt.requirements import require_distributed

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

CONNECT_S = 10.0
"""Seconds until a scheduler that does not answer is given up."""
WORKERS_S = 60.0
"""Seconds until a cluster without any worker is given up."""
_POLL_S = 1.0
_REMEDY = "install the same versions, and this very release or checkout of wsopt, there and here"
_BATCHES = itertools.count()


@contextlib.contextmanager
def workers_at(scheduler: str | None) -> Iterator[Workers]:
    """The workers of a Dask scheduler by its address, such as tcp://10.0.0.1:8786; without one those of this machine.

    Raises RequirementError where there is no scheduler, or where its workers do not have what this process has.
    """
    if scheduler is None:
        yield LOCAL
        return
    require_distributed("--scheduler")
    from distributed import Client
    from distributed.comm import get_address_host_port

    try:
        get_address_host_port(scheduler)  # a client that finds this out ends with a traceback of its own
        client = Client(scheduler, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise RequirementError(
            f"no Dask scheduler answers at {scheduler} ({error}); `dask scheduler` starts one, and tells its address"
        ) from error
    try:
        cluster = Cluster(scheduler, client)
        cluster.check()
        yield cluster
    finally:
        client.close()


@dataclass(frozen=True, slots=True)
class Cluster:
    """The workers of a Dask scheduler."""

    address: str
    client: Any

    @property
    def at_once(self) -> int:
        """As `Workers.at_once`: a worker does one task at a time."""
        return max(1, len(self.client.nthreads()))

    def results(
        self,
        function: Callable[[_Task], _Result],
        tasks: Sequence[_Task],
        progress: Progress = silent,
        keep: Callable[[int, _Result], None] = not_kept,
    ) -> list[_Result]:
        """As `Workers.results`; the scheduler gives what a lost worker had to others.

        Raises RequirementError where a task has ended several workers, and where the scheduler or all workers are
        gone.
        """
        from distributed import KilledWorker

        if extended():
            raise RequirementError(
                "a cluster's workers do not know the entries that were added to tables here"
            )
        batch = next(_BATCHES)
        remote = _Remote(function, dict(versions_here()))
        futures = [
            self.client.submit(remote, task, key=f"wsopt-{self.client.id}-{batch}-{place}", pure=False)
            for place, task in enumerate(tasks)
        ]
        gathering: Gathering[_Result] = Gathering(len(tasks), progress, keep)
        try:
            gathering.take(dict(zip(futures, range(len(futures)), strict=True)), self._ended(futures))
            return gathering.outcome()
        except KilledWorker as error:
            raise RequirementError(
                f"a task has ended every worker of {self.address} that took it, such as for want of memory: {error}"
            ) from error
        except (CancelledError, OSError) as error:
            raise RequirementError(
                f"the Dask scheduler at {self.address} is gone; results that have come back are in the cache, so "
                "that the same command goes on from there"
            ) from error

    def check(self) -> None:
        """Raise RequirementError unless every worker has what this process has, and does one task at a time."""
        workers = self._wait()
        problems = [
            f"the worker {address} runs {threads} tasks in one process, and a search wants one of its own; start it "
            "with `dask worker --nworkers N --nthreads 1`"
            for address, threads in workers.items()
            if threads != 1
        ]
        ours = versions_here()
        for address, theirs in self.client.run(_asker()).items():
            told = [theirs] if isinstance(theirs, str) else differences(theirs, ours)
            if told:
                problems.append(
                    f"the worker {address} is none for this process: {'; '.join(told)}; {_REMEDY}"
                )
        if problems:
            raise RequirementError("\n".join(problems))

    def _wait(self) -> dict[str, int]:
        """How many threads each worker has, once there is one."""
        until = time.monotonic() + WORKERS_S
        while not (found := dict(self.client.nthreads())):
            if time.monotonic() > until:
                raise self._no_workers()
            time.sleep(_POLL_S)
        return found

    def _no_workers(self) -> RequirementError:
        return RequirementError(
            f"the Dask scheduler at {self.address} has had no worker for {WORKERS_S:.0f} s; start some with "
            f"`dask worker {self.address} --nworkers N --nthreads 1`"
        )

    def _ended(self, futures: Sequence[Any]) -> Iterator[Any]:
        """Tasks as they end. Raises RequirementError where there has been no worker for long."""
        ended: Queue[Any] = Queue()
        for future in futures:
            future.add_done_callback(ended.put)
        alive = time.monotonic()
        for _ in futures:
            while True:
                try:
                    future = ended.get(timeout=_POLL_S)
                    break
                except Empty:
                    if self.client.nthreads():
                        alive = time.monotonic()
                    elif time.monotonic() > alive + WORKERS_S:
                        raise self._no_workers() from None
            alive = time.monotonic()
            yield future


@dataclass(frozen=True, slots=True)
class _Remote(Generic[_Task, _Result]):
    """A function as a worker applies it: only where the worker has what the caller has, for workers come and go."""

    function: Callable[[_Task], _Result]
    versions: Versions

    def __call__(self, task: _Task) -> _Result:
        told = differences(versions_here(), self.versions)
        if told:
            raise RequirementError(f"a worker is none for this process: {'; '.join(told)}; {_REMEDY}")
        return self.function(task)


def _asker() -> Callable[[], Any]:
    """A function that says what a worker has. It is sent as code, and so runs where nothing is installed."""

    def ask() -> Any:
        import importlib

        try:
            return dict(importlib.import_module("wsopt.pool.versions").versions_here())
        except ImportError as error:
            return f"wsopt is not installed there, or another version ({error})"

    return ask
