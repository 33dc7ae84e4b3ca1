"""What a call does anew, what it keeps, and what it refuses: the launcher under a stand-in for torch and driver."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from emit_builds import build
from runtime_stand_ins import ELSEWHERE, GOLDEN, INVALID_CONTEXT, Stage, like, tensor

from wsopt.graph.builder import GraphBuilder
from wsopt.program.types import Sharing, Structure
from wsopt.runtime.text import launcher_text


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_kernel_ends_with_the_launcher() -> None:
    assert launcher_text() in GOLDEN.read_text("utf-8")


def test_a_warm_call_makes_nothing_anew(stage: Stage) -> None:
    x, w, out = tensor(256, 128), tensor(128, 128), tensor(256, 128)
    stage.host.empty = lambda *_: out
    assert stage.run(x=x, w=w) is out
    for _ in range(2):
        assert stage.run(x=x, w=w) is out
    before = stage.driver.calls + stage.calls
    for _ in range(3):
        assert stage.run(x=x, w=w) is out
    assert stage.driver.calls + stage.calls == before + Counter({"alike": 3})
    assert len(stage.driver.launches) == 6
    assert stage.passed() == [x.data_ptr(), w.data_ptr(), out.data_ptr()]
    assert stage.driver.launches[-1][:2] == ((2, 1, 1), 7)
    extents = [int.from_bytes(one, "little") for one in stage.driver.launches[-1][2][1:5]]
    assert extents == [256, 128, 128, 1]


def test_inputs_that_take_turns_make_no_guards(stage: Stage) -> None:
    """Guards are made where a layout comes twice in a row, not at every change."""
    w, inputs = tensor(128, 128), (tensor(256, 128), tensor(512, 128))
    for _ in range(4):
        for x in inputs:
            assert stage.run(x=x, w=w).shape == (*x.shape[:1], 128)
    assert stage.calls["guards"] == 0
    for _ in range(3):
        stage.run(x=inputs[1], w=w)
    assert stage.calls["guards"] == 1
    assert stage.run(x=inputs[0], w=w).shape == (256, 128)
    assert stage.passed()[0] == inputs[0].data_ptr()


def test_other_addresses_are_put_into_what_is_kept(stage: Stage) -> None:
    w = tensor(128, 128)
    stage.run(x=tensor(256, 128), w=w)
    bound, other = stage.calls["bind"], tensor(256, 128)
    stage.run(x=other, w=w)
    assert stage.calls["bind"] == bound
    assert stage.driver.calls["encode"] == 3
    assert stage.passed()[:2] == [other.data_ptr(), w.data_ptr()]


def test_other_extents_and_streams_are_told_apart(stage: Stage) -> None:
    w = tensor(128, 128)
    stage.run(x=tensor(256, 128), w=w)
    stage.run(x=tensor(512, 128), w=w)
    stage.stream = 9
    stage.run(x=tensor(512, 128), w=w)
    assert [launch[:2] for launch in stage.driver.launches] == [
        ((2, 1, 1), 7),
        ((4, 1, 1), 7),
        ((4, 1, 1), 9),
    ]


def test_two_inputs_that_are_one_tensor_stay_two_inputs(stage: Stage) -> None:
    x, other = tensor(128, 128), tensor(128, 128)
    stage.run(x=x, w=x)
    stage.run(x=x, w=other)
    assert stage.passed()[:2] == [x.data_ptr(), other.data_ptr()]


def test_out_is_written_and_returned(stage: Stage) -> None:
    x, w, out = tensor(256, 128), tensor(128, 128), tensor(256, 128)
    assert stage.run(x=x, w=w, out=out) is out
    assert stage.passed()[2] == out.data_ptr()
    with pytest.raises(ValueError, match="out has 2 tensors; the outputs are y"):
        stage.run(x=x, w=w, out=(out, out))
    for shape in ((256, 64), (128, 128)):
        with pytest.raises(ValueError, match=r"tensor y has extents .*, expected \[256, 128\]"):
            stage.run(x=x, w=w, out=tensor(*shape))
    with pytest.raises(ValueError, match="tensor y has 3 dimensions, expected 2"):
        stage.run(x=x, w=w, out=tensor(256, 128, 1))


def test_a_prepared_launch_keeps_its_tensors_and_follows_the_stream(stage: Stage) -> None:
    x, w = tensor(256, 128), tensor(128, 128)
    launch, outputs = stage.names["prepare"](x=x, w=w)
    launch()
    stage.stream = 11
    launch()
    assert [one[1] for one in stage.driver.launches] == [7, 11]
    assert stage.passed() == [x.data_ptr(), w.data_ptr(), outputs["y"].data_ptr()]


def test_inputs_that_require_a_gradient(stage: Stage) -> None:
    x, w = like(tensor(256, 128), requires_grad=True), tensor(128, 128)
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"tensor x requires a gradient.*torch.no_grad\(\).*x.detach\(\)"
        ):
            stage.run(x=x, w=w)
        stage.grads = False
        stage.run(x=x, w=w)
        stage.grads = True
    assert len(stage.driver.launches) == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"x": tensor(0, 128), "w": tensor(128, 128)}, "tensor x has no elements"),
        (
            {"x": like(tensor(256, 128), is_cuda=False, device="cpu"), "w": tensor(128, 128)},
            "x is on cpu, expected a",
        ),
        (
            {"x": tensor(256, 128), "w": like(tensor(128, 128), device=ELSEWHERE)},
            "w is on cuda:1, expected cuda:0",
        ),
        ({"x": tensor(256, 128), "w": tensor(128, 64)}, "tensor w has extents"),
    ],
)
def test_refusals(stage: Stage, given: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        stage.run(**given)
    assert stage.driver.launches == []


def test_an_input_that_is_missing_is_named(stage: Stage) -> None:
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'w'"):
        stage.run(x=tensor(256, 128))
    with pytest.raises(ValueError, match="tensor w is missing; the inputs are x, w"):
        stage.names["prepare"](x=tensor(256, 128))
    with pytest.raises(ValueError, match="tensor x is missing; the inputs are x, w"):
        stage.launcher.run({"w": tensor(128, 128)}, None)


def test_inputs_that_no_output_needs_are_taken_and_ignored(stage: Stage) -> None:
    x, w = tensor(256, 128), tensor(128, 128)
    stage.run(x=x, w=w, spare=tensor(3))
    launch, _ = stage.names["prepare"](x=x, w=w, spare=tensor(3))
    launch()
    assert [stage.passed(one)[:2] for one in (0, 1)] == [[x.data_ptr(), w.data_ptr()]] * 2


def test_the_device_of_the_tensors_is_the_one(stage: Stage) -> None:
    x, w = (like(one, device=ELSEWHERE) for one in (tensor(256, 128), tensor(128, 128)))
    empty, found = stage.host.empty, []
    stage.host.empty = lambda *one: found.append(stage.device) or empty(*one)
    stage.run(x=x, w=w)
    assert found == [1]
    assert stage.device == 0


def test_a_thread_without_a_context_gets_one_once(stage: Stage) -> None:
    x, w = tensor(256, 128), tensor(128, 128)
    stage.driver.errors = [INVALID_CONTEXT]
    stage.run(x=x, w=w)
    assert stage.calls["set_device"] == 1
    assert len(stage.driver.launches) == 1
    for errors in ([INVALID_CONTEXT, INVALID_CONTEXT], [700]):
        stage.driver.errors = errors
        with pytest.raises(RuntimeError, match=f"cannot be launched: some fault .CUDA error {errors[0]}"):
            stage.run(x=x, w=w)


def test_code_that_takes_other_parameters_is_not_launched(stage: Stage) -> None:
    stage.driver.sizes.append(8)
    with pytest.raises(RuntimeError, match="the kernel takes parameters of"):
        stage.run(x=tensor(256, 128), w=tensor(128, 128))
    assert stage.driver.launches == []


def test_code_that_wants_scratch_memory_is_not_launched(stage: Stage) -> None:
    stage.scratch = 64
    with pytest.raises(RuntimeError, match="scratch memory"):
        stage.run(x=tensor(256, 128), w=tensor(128, 128))


def test_caches_are_bounded_and_drop_the_oldest(stage: Stage) -> None:
    stage.names["_CALLS"], stage.names["_LAYOUTS"] = 4, 3
    w, kept = tensor(128, 128), []
    for rows in range(1, 8):
        kept.append(tensor(rows, 128))
        stage.run(x=kept[-1], w=w)
    assert len(stage.launcher._frames) == 3
    assert len(stage.launcher._calls) == 4
    stage.run(x=kept[0], w=w)
    assert stage.passed()[0] == kept[0].data_ptr()


def test_a_table_is_made_once_and_not_under_capture(stage: Stage) -> None:
    made = []
    table = stage.names["_table"]
    stage.capturing = True
    with pytest.raises(
        RuntimeError, match=r"call run\(\) or prepare\(\) once with tensors of these shapes before"
    ):
        table("cuda:0", (1, 2), lambda: made.append(1) or [1])
    stage.capturing = False
    first = table("cuda:0", (1, 2), lambda: made.append(1) or [1])
    assert table("cuda:0", (1, 2), lambda: made.append(1) or [1]) is first
    stage.capturing = True
    assert table("cuda:0", (1, 2), lambda: made.append(1) or [1]) is first
    assert made == [1]


def test_a_driver_that_cannot_tell_the_layout_is_given_parameters_one_by_one(stage: Stage) -> None:
    stage.names["_parameter_layout"] = lambda _handle: None
    x, w = tensor(256, 128), tensor(128, 128)
    y = stage.run(x=x, w=w)
    assert stage.passed() == [x.data_ptr(), w.data_ptr(), y.data_ptr()]


def test_bools_are_passed_as_bytes_by_their_own_addresses() -> None:
    g = GraphBuilder("chosen")
    x, m = g.input("x", (256, 128), "bf16"), g.input("m", (256, 128), "bool")
    g.output(g.cast(g.where(m, x, 0.0), "bf16", name="y"))
    made = build(g.build(), Structure(8, 128, 1, 1, 4, Sharing.COOPERATIVE, True, False, 1, 1))
    stage = Stage(made.source)
    stage.driver.sizes = [*stage.driver.sizes[:15], *[4] * (len(stage.names["SIGNATURE"]) - 3), 8, 8]
    x, masks = tensor(256, 128), [tensor(256, 128, dtype=np.dtype(bool)) for _ in range(2)]
    for mask in masks:
        out = tensor(256, 128)
        assert stage.run(x=x, m=mask, out=out) is out
    order = [name.removesuffix("_desc") for name in list(stage.names["SIGNATURE"])[:3]]
    passed = dict(zip(order, stage.passed(), strict=True))
    assert (passed["x"], passed["m"]) == (x.data_ptr(), masks[1].data_ptr())
    with pytest.raises(ValueError, match=r"tensor m is torch\.int8, expected torch\.bool"):
        stage.run(x=x, m=tensor(256, 128, dtype=np.dtype(np.int8)))


def test_pairs_of_blocks_are_launched_whole_and_copy_a_half_each(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage((GOLDEN.parents[2] / "targets" / "goldens" / "paired.txt").read_text("utf-8"))
    boxes, warmup, encode = [], stage.launcher._kernel.warmup, stage.driver.cuTensorMapEncodeTiled

    def paired(*args: Any, **named: Any) -> Any:
        found = warmup(*args, **named)
        found.metadata.num_ctas = named["num_ctas"]
        return found

    def kept(*args: Any) -> int:
        boxes.append(tuple(args[6]))
        return int(encode(*args))

    monkeypatch.setattr(stage.launcher._kernel, "warmup", paired)
    monkeypatch.setattr(stage.driver, "cuTensorMapEncodeTiled", kept, raising=False)
    stage.run(x=tensor(512, 128), w=tensor(384, 128))
    assert [launch[0] for launch in stage.driver.launches] == [(2 * 2, 1, 1)], "two pairs of a card of four"
    assert boxes == [(64, 128), (64, 64), (64, 128)]
