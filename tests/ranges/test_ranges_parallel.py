"""Work in processes: results in order, progress, and what a task raises."""

from __future__ import annotations

import pytest

from wsopt.errors import InfeasibleError
from wsopt.ranges.parallel import in_processes


def _halved(task: int) -> int:
    if task % 2:
        raise InfeasibleError(f"{task} is odd")
    return task // 2


@pytest.mark.parametrize("cores", [1, 3])
def test_results_are_in_the_order_of_tasks(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    steps: list[tuple[int, int]] = []
    assert in_processes(_halved, [8, 2, 6, 4], lambda done, total: steps.append((done, total))) == [
        4,
        1,
        3,
        2,
    ]
    assert steps[0] == (0, 4)
    with pytest.raises(InfeasibleError, match="3 is odd"):
        in_processes(_halved, [2, 3], lambda done, total: None)
    assert in_processes(_halved, [], lambda done, total: None) == []
