"""Processes that work beside each other count on a share of the cores."""

from __future__ import annotations

import pytest

from wsopt.pool import share
from wsopt.pool.local import Forks, Interpreters


def _cores(_task: int) -> int:
    return share.cores()


def test_cores_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSOPT_CORES", "8")
    assert share.cores() == 8
    assert [share.shared_among(n)["WSOPT_CORES"] for n in (1, 3, 8, 11)] == ["8", "2", "1", "1"]
    monkeypatch.delenv("WSOPT_CORES")
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert share.cores() == 1


@pytest.mark.parametrize("workers", [Forks(2), Interpreters(2)])
def test_whoever_works_beside_others_is_told(
    workers: Forks | Interpreters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WSOPT_CORES", "6")
    assert workers.results(_cores, [0, 1, 2]) == [3, 3, 3]
    assert share.cores() == 6
