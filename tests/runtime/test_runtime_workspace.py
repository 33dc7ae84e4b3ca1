"""The workspace of a kernel whose sums are split: one a stream, made outside of captures, never freed.

Where blocks take tiles at run time it is a counter alone.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import emit_builds as builds
import pytest
from emit_builds import build, graph_of, structure
from runtime_stand_ins import ELSEWHERE, Stage, like, tensor

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Sharing, Structure
from wsopt.runtime.text import workspace_text

SPLITS, ROWS, COLUMNS = 3, 128, 64
PLACE = ROWS // 2 * COLUMNS


@pytest.fixture(scope="module")
def source() -> str:
    return build(graph_of(builds.plain), structure(COLUMNS, 64, 2, splits=SPLITS)).source


@pytest.fixture
def stage(source: str) -> Stage:
    made = Stage(source, memory=2)
    made.names["_new_workspace"] = made._counted("workspace", made.names["_new_workspace"])
    return made


def call(stage: Stage, rows: int = 256, w: Any = None) -> Any:
    return stage.run(x=tensor(rows, 256), w=tensor(128, 256) if w is None else w)


def passed(stage: Stage, launch: int = -1) -> tuple[int, int]:
    """The addresses of partial sums and counters in a launch."""
    places, counters = stage.driver.launches[launch][2][-4:-2]
    return int.from_bytes(places, "little"), int.from_bytes(counters, "little")


def test_a_kernel_has_the_text_that_keeps_a_workspace(source: str) -> None:
    assert workspace_text() in source
    assert workspace_text() not in build(graph_of(builds.plain), structure()).source


def test_a_launch_is_given_its_streams_workspace(stage: Stage) -> None:
    call(stage)
    (places, counters) = stage.launcher._workspaces[0, 7]
    assert passed(stage) == (places.data_ptr(), counters.data_ptr())
    assert (places.numel(), counters.numel()) == (4 * SPLITS * 2 * PLACE, 4 * 2)
    assert str(places.dtype) == "torch.float32"
    assert str(counters.dtype) == "torch.int32"
    assert not counters.numpy().any()
    assert stage.driver.launches[-1][0] == (4, 1, 1)  # processors, for 12 parts


def test_a_warm_call_makes_nothing_anew(stage: Stage) -> None:
    x, w, out = tensor(256, 256), tensor(128, 256), tensor(256, 128)
    stage.host.empty = lambda *_: out
    for _ in range(3):
        stage.run(x=x, w=w)
    before, workspace = stage.driver.calls + stage.calls, passed(stage)
    for _ in range(3):
        assert stage.run(x=x, w=w) is out
    assert stage.driver.calls + stage.calls == before + Counter({"alike": 3})
    assert len(stage.driver.launches) == 6
    assert passed(stage) == workspace


def test_streams_have_workspaces_of_their_own(stage: Stage) -> None:
    launch, _ = stage.names["prepare"](x=tensor(256, 256), w=tensor(128, 256))
    seen = []
    for stream in (7, 9, 7, 9):
        stage.stream = stream
        call(stage)
        launch()
        assert passed(stage) == passed(stage, -2)
        seen.append(passed(stage))
    assert (seen[0], seen[1]) == (seen[2], seen[3])
    assert len({address for one in seen for address in one}) == 4


def test_devices_have_workspaces_of_their_own(stage: Stage) -> None:
    call(stage)
    first = passed(stage)
    there = [like(tensor(*shape), device=ELSEWHERE) for shape in ((256, 256), (128, 256))]
    stage.run(x=there[0], w=there[1])
    assert passed(stage) != first
    assert {device for device, _ in stage.launcher._workspaces} == {0, 1}


def test_a_workspace_grows_and_the_one_before_stays(stage: Stage) -> None:
    w = tensor(128, 256)
    kept = tensor(256, 256)
    stage.run(x=kept, w=w, out=(out := tensor(256, 128)))
    small = passed(stage)
    call(stage, 384, w)
    large = stage.launcher._workspaces[0, 7]
    assert large[0].numel() == 2 * 4 * SPLITS * 2 * PLACE, "at least twice as large"
    assert passed(stage) == (large[0].data_ptr(), large[1].data_ptr()) != small
    call(stage, 512, w)
    assert passed(stage) == (large[0].data_ptr(), large[1].data_ptr())
    stage.run(x=kept, w=w, out=out)
    assert passed(stage) == small, "a call that was prepared keeps what it was given"
    assert any(small == (a.data_ptr(), b.data_ptr()) for a, b in stage.launcher._made)


def test_a_capture_needs_a_workspace_that_was_made_before(stage: Stage) -> None:
    stage.capturing = True
    for _ in range(2):
        with pytest.raises(
            RuntimeError, match=r"no workspace.*call run\(\) or prepare\(\) once on it.*before"
        ):
            call(stage)
    assert (stage.driver.launches, stage.calls["workspace"]) == ([], 0)
    stage.capturing = False
    call(stage)
    stage.capturing = True
    before = stage.calls["workspace"]
    call(stage)
    assert passed(stage) == passed(stage, -2)
    assert stage.calls["workspace"] == before


def test_a_stream_that_captures_first_takes_the_spare_workspace(stage: Stage) -> None:
    """torch.cuda.graph captures on a stream of its own, on which nobody has called the kernel before."""
    call(stage)
    assert stage.calls["synchronize"] == 1, "cleared before another stream takes it"
    own, stage.stream, stage.capturing = passed(stage), 9, True
    call(stage)
    captured = passed(stage)
    assert {*captured}.isdisjoint(own)
    call(stage)
    assert passed(stage) == captured
    stage.stream = 11
    with pytest.raises(RuntimeError, match="no workspace"):
        call(stage)
    stage.stream, stage.capturing = 7, False
    call(stage)
    stage.stream, stage.capturing = 11, True
    call(stage)
    assert {*passed(stage)}.isdisjoint((*own, *captured))


def test_other_calls_forget_no_workspace(stage: Stage) -> None:
    stage.names["_CALLS"] = 2
    w = tensor(128, 256)
    for rows in (128, 256, 128, 384):
        call(stage, rows, w)
    assert len(stage.launcher._calls) == 2
    assert len({one[0].data_ptr() for one in stage.launcher._made}) == len(stage.launcher._made)


# --- a counter alone --------------------------------------------------------------------------------------


def added(g: GraphBuilder) -> Symbol:
    x, w = (g.input(name, (64, 512), "bf16") for name in "xw")
    return g.cast(g.add(x, w), "bf16", name="y")


@pytest.fixture(scope="module")
def dynamic_source() -> str:
    """y[M, N] = x[M, N] + w[M, N], with tiles that are taken at run time."""
    s = Structure(2, 256, 1, 2, 4, Sharing.COOPERATIVE, True, False, 1, 1, dynamic=True)
    return build(graph_of(added), s).source


KEPT: list[Any] = []


@pytest.fixture
def dynamic(dynamic_source: str) -> Stage:
    made = Stage(dynamic_source)
    kinds = made.names["SIGNATURE"].values()
    made.driver.sizes = [*(size for kind in kinds for size in parameter_sizes(kind)), 8, 8]
    return made


def counted(stage: Stage, rows: int = 64) -> int:
    """The address of the counter of a launch, of tensors that no launch before it had."""
    given = {name: tensor(rows, 512) for name in ("x", "w")}
    KEPT.append((given, stage.run(**given)))
    return int.from_bytes(stage.driver.launches[-1][2][-3], "little")


def test_a_counter_of_tiles_is_a_workspace(dynamic: Stage) -> None:
    stream, numbers = dynamic.stream, list[int]()
    for dynamic.stream in (stream, stream, stream + 1):
        for rows in (64, 64, 32):
            numbers.append(counted(dynamic, rows))
            _, counter = dynamic.launcher._workspaces[0, dynamic.stream]
            assert numbers[-1] == counter.data_ptr()
            assert (counter.numel(), counter.numpy().any()) == (1, False)
    assert len({*numbers[:6]}) == len({*numbers[6:]}) == 1
    assert numbers[0] != numbers[-1], "launches on two streams may run at the same time"


def test_every_captured_launch_has_a_counter_of_its_own(dynamic: Stage) -> None:
    """Graphs that were captured on one stream may be replayed on two."""
    dynamic.capturing = True
    with pytest.raises(RuntimeError, match=r"no counter of tiles.*call run\(\) or prepare\(\) once.*before"):
        counted(dynamic)
    dynamic.capturing = False
    own = counted(dynamic)
    dynamic.capturing = True
    captured = [counted(dynamic) for _ in range(100)]
    assert len({own, *captured}) == 101
    dynamic.launcher._spare[0] = tuple(one[:0] for one in dynamic.launcher._spare[0])
    with pytest.raises(RuntimeError, match="no counter of tiles is left for one more launch"):
        counted(dynamic)
    dynamic.capturing = False
    assert counted(dynamic) == own
    dynamic.capturing = True
    assert counted(dynamic) not in {own, *captured}


def parameter_sizes(kind: str) -> list[int]:
    """Bytes of the parameters that an argument of this type becomes."""
    if kind.startswith("tensordesc"):
        rank = kind[: kind.index("]")].count(",") + 1
        return [128, *[4] * rank, *[8] * rank]
    return [8] if kind.startswith("*") else [4]
