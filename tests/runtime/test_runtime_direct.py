"""Direct calls of a kernel: what they find out once and when they ask again, under a stand-in for torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from runtime_stand_ins import INVALID_CONTEXT, Stage, like, tensor  # noqa: E402

from wsopt.runtime import direct as subject  # noqa: E402
from wsopt.runtime.direct import Launch, direct  # noqa: E402


@pytest.fixture
def stage() -> Stage:
    found = Stage()
    found.launcher._open()
    return found


def launch_of(stage: Stage, copied: Sequence[int] = (), names: Sequence[str] = ("x", "w")) -> Launch:
    """A direct call of the stage's kernel, for which the inputs of these numbers are copied."""

    def lay(given: Sequence[Any]) -> list[Any]:
        stage.calls["lay"] += 1
        return [like(x) if number in copied else x for number, x in enumerate(given)]

    return direct(stage.launcher, names, ("y",), lay)


def test_a_call_at_known_addresses_asks_nothing(stage: Stage) -> None:
    launch = launch_of(stage)
    x, w, y = tensor(256, 128), tensor(128, 128), tensor(256, 128)
    launch(x, w, y)
    before = stage.driver.calls + stage.calls
    for _ in range(3):
        launch(x, w, y)
    assert stage.driver.calls + stage.calls == before
    assert len(stage.driver.launches) == 4
    assert stage.passed() == [x.data_ptr(), w.data_ptr(), y.data_ptr()]
    assert stage.driver.launches[-1] == stage.driver.launches[0]


def test_inputs_in_another_order_than_the_kernels(stage: Stage) -> None:
    """Kernels name first what they load first. A square product's operands have one layout, and other places."""
    launch = launch_of(stage, names=("w", "x"))
    one, other, y = tensor(128, 128), tensor(128, 128), tensor(128, 128)
    for _ in range(3):
        for w, x in ((one, other), (other, one)):
            launch(w, x, y)
            assert stage.passed() == [x.data_ptr(), w.data_ptr(), y.data_ptr()]
    assert stage.calls["lay"] == 2


def test_other_addresses_and_streams_are_told_apart(stage: Stage) -> None:
    launch = launch_of(stage)
    x, w, results = tensor(256, 128), tensor(128, 128), (tensor(256, 128), tensor(256, 128))
    for y in (*results, *results):
        launch(x, w, y)
        assert stage.passed()[2] == y.data_ptr()
    assert stage.calls["lay"] == 2
    stage.stream = 9
    launch(x, w, results[0])
    assert stage.driver.launches[-1][1] == 9
    assert stage.calls["lay"] == 3


def test_what_is_copied_is_copied_at_every_call(stage: Stage) -> None:
    launch = launch_of(stage, copied=[0])
    for _ in range(3):
        launch(tensor(256, 128), tensor(128, 128), tensor(256, 128))
    x, w, y = tensor(256, 128), tensor(128, 128), tensor(256, 128)
    for _ in range(3):
        launch(x, w, y)
    assert stage.calls["lay"] == 6
    assert len(stage.driver.launches) == 6


def test_a_thread_without_a_context_gets_one(stage: Stage) -> None:
    launch = launch_of(stage)
    given = tensor(256, 128), tensor(128, 128), tensor(256, 128)
    launch(*given)
    stage.driver.errors = [INVALID_CONTEXT, INVALID_CONTEXT]
    launch(*given)
    assert stage.calls["set_device"] == 1
    assert len(stage.driver.launches) == 2
    stage.driver.errors = [1, 1]
    with pytest.raises(RuntimeError, match="cannot be launched"):
        launch(*given)


def test_launches_that_are_kept_are_bounded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_KEPT", 2)
    launch, x, w = launch_of(stage), tensor(256, 128), tensor(128, 128)
    results = [tensor(256, 128) for _ in range(3)]
    for y in (*results, results[2], results[1], results[0]):
        launch(x, w, y)
    assert stage.calls["lay"] == 4


def test_a_table_that_a_capture_reads_is_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[int, Any] = {}
    monkeypatch.setattr(subject, "_CAPTURED", kept)
    launch = launch_of(stage)
    given = tensor(256, 128), tensor(128, 128), tensor(256, 128)
    launch(*given)
    (frame,) = stage.launcher._frames.values()
    frame.table, table = tensor(8, 1), frame.table
    assert table is None
    stage.stream = 8
    stage.launcher._calls.clear()
    frame.table.record_stream = lambda _stream: None
    launch(*given)
    stage.capturing = True
    launch(*given)
    assert kept == {id(frame.table): frame.table}
