"""A real Dask cluster on this machine: results in order, workers that do not fit, workers that are lost."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from dask_cluster import Running, running
from test_pool_local import ended_always, ended_once, halved, told

from wsopt.errors import InfeasibleError, InputError, RequirementError
from wsopt.pool import cluster, versions
from wsopt.pool.cluster import workers_at

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        folder = tmp_path_factory.mktemp("cluster")
        with running(folder, 2, WSOPT_CACHE_DIR=str(folder / "cache")) as found:
            yield found


def test_results_errors_and_order(two: Running) -> None:
    with workers_at(two.address) as workers:
        kept: dict[int, int] = {}
        assert workers.results(halved, [8, 2, 6, 4], keep=kept.__setitem__) == [4, 1, 3, 2]
        assert kept == {0: 4, 1: 1, 2: 3, 3: 2}
        with pytest.raises(InfeasibleError, match="3 is odd"):
            workers.results(halved, [2, 3, 5])
        with pytest.raises(InputError, match="here: /there: wrong"):
            workers.results(told, [1])
        assert workers.results(halved, []) == []


def test_workers_have_to_have_what_the_caller_has(two: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {**versions.versions_here(), "ortools": "1.0", "wsopt's machine files": "0"}
    monkeypatch.setattr(cluster, "versions_here", lambda: other)
    with pytest.raises(RequirementError) as caught, workers_at(two.address):
        pytest.fail("workers of another version were taken")
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "none for this process: ortools is 9." in line
        assert "there and 1.0 here; wsopt's machine files is" in line
    monkeypatch.setattr(cluster.Cluster, "check", lambda self: None)  # a worker that comes later
    with pytest.raises(RequirementError, match="a worker is none"), workers_at(two.address) as workers:
        workers.results(halved, [2])


def test_threads_of_one_process_are_no_workers(tmp_path: Path) -> None:
    with (
        running(tmp_path, 1, threads=2) as found,
        pytest.raises(RequirementError, match=r"runs 2 tasks in one process.*--nthreads 1"),
        workers_at(found.address),
    ):
        pytest.fail("a worker of two threads was taken")


def test_a_scheduler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_S", 0.5)
    with pytest.raises(RequirementError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        workers_at("tcp://127.0.0.1:9").__enter__()
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    with pytest.raises(RequirementError, match="no Dask scheduler answers at here"):
        workers_at("here").__enter__()
    gc.collect()
    assert not ignored, "what is left of a client prints a traceback behind the sentence"


def test_what_a_lost_worker_had_is_done_again(
    two: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with workers_at(two.address) as workers:
        tasks = [(str(tmp_path), number) for number in range(6)]
        assert workers.results(ended_once, tasks) == list(range(6))
        assert (tmp_path / "asked").read_text().split().count("3") == 2
        assert [one.poll() is None for one in two.workers].count(False) == 1
        monkeypatch.setattr(cluster, "WORKERS_S", 1.0)
        with pytest.raises(
            RequirementError, match="has had no worker for 1 s; start some with `dask worker tcp:"
        ):
            workers.results(ended_always, [1])
