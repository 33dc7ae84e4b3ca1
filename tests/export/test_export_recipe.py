"""Every launch recipe says what the Python launcher does: grid, descriptors, scalars, tables, refusals, outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from evaluated_recipe import TORCH_NAMES, Evaluated
from export_kernels import KERNELS, emitted, inputs
from observed_launch import Seen, memory, observe, shown, table

from wsopt.emit.integers import GLUON, PYTHON, Expression, ceil_divide, minimum, named, product, shape_of
from wsopt.emit.recipe import Argument, DealtOrder, Recipe, ScalarArgument, TensorMap, Workspace
from wsopt.emit.recipe_of import launch_recipe
from wsopt.export.cpp_names import CPP

PROCESSORS = (2, 7, 132)


def recipe(name: str) -> Recipe:
    return launch_recipe(emitted(name).verified)


def passed(argument: Argument, given: Any) -> Any:
    """What the launcher passes for an argument, as `Evaluated.arguments` says it."""
    match argument:
        case DealtOrder():
            return table(given)
        case Workspace(dtype=dtype, zeroed=zeroed):
            return memory(given, TORCH_NAMES[dtype], zeroed=zeroed)
        case _:
            return shown(given)


@pytest.mark.parametrize("processors", PROCESSORS)
@pytest.mark.parametrize("name", KERNELS)
def test_says_what_the_launcher_does(name: str, processors: int) -> None:
    made = recipe(name)
    for given in inputs(name):
        launch = observe(emitted(name).source, given, processors)
        found = Evaluated(made, launch.seen, processors)
        assert found.refusal is None
        assert found.grid == launch.grid
        assert found.output_shapes() == {one.name: launch.seen[one.name].shape for one in made.outputs}
        assert len(made.arguments) == len(launch.arguments)
        for argument, ours, theirs in zip(made.arguments, found.arguments(), launch.arguments, strict=True):
            assert ours == passed(argument, theirs), argument


@pytest.mark.parametrize("name", ["gated", "all keys", "ragged_softmax"])
def test_strides_along_one_element_are_anything(name: str) -> None:
    made, given = recipe(name), inputs(name)[0]
    for stride in (2, 0, 10**6 + 1):
        alone = {
            tensor: np.lib.stride_tricks.as_strided(
                array, (1, *array.shape[1:]), (stride * array.itemsize, *array.strides[1:])
            )
            if array.ndim > 2
            else array
            for tensor, array in given.items()
        }
        launch = observe(emitted(name).source, alone, 7)
        assert any(seen.strides[0] == stride for seen in launch.seen.values())
        found = Evaluated(made, launch.seen, 7)
        assert (found.refusal, found.grid) == (None, launch.grid)
        for argument, ours, theirs in zip(made.arguments, found.arguments(), launch.arguments, strict=True):
            assert isinstance(argument, DealtOrder) or ours == shown(theirs)


@pytest.mark.parametrize("name", KERNELS)
def test_names_the_arguments_as_the_kernel_does(name: str) -> None:
    made = recipe(name)
    signature = emitted(name).source.split("SIGNATURE = {\n")[1].split("\n}")[0]
    wanted = [line.split('"')[1] for line in signature.splitlines()]
    assert [argument.argument for argument in made.arguments] == wanted


def test_the_kernels_have_every_kind_of_argument() -> None:
    """Else the tests above would hold nothing against nothing."""
    made = [recipe(name) for name in KERNELS]
    assert any(one.order for one in made)
    assert any(one.order and one.order.begin != 0 for one in made)
    assert any(one.order and not one.order.longest_last for one in made)
    assert any(one.workspaces for one in made)
    strides = [
        a for one in made for a in one.arguments if isinstance(a, ScalarArgument) and "stride" in a.argument
    ]
    assert strides
    maps = [a for one in made for a in one.arguments if isinstance(a, TensorMap)]
    assert {one.swizzle for one in maps} >= {0, 64, 128}
    assert any(256 in one.extents for one in maps), "no rows are folded into parts"
    assert any(len(one.maps) > len({m.tensor for m in one.maps}) for one in made), "no tensor has two maps"


# --- refusals -------------------------------------------------------------------------------------------


def shrunk(array: Any, dim: int) -> Any:
    return array[
        tuple(slice(0, n - 8) if i == dim else slice(None) for i, n in enumerate(array.shape))
    ].copy()


def wrong_inputs(name: str) -> list[dict[str, Any]]:
    """Inputs with one extent, one order of dimensions or one stride that may not be."""
    (given, *_) = inputs(name)
    found = []
    for tensor, array in given.items():
        found += [{**given, tensor: shrunk(array, dim)} for dim in range(array.ndim) if array.shape[dim] > 8]
        if array.ndim > 1 and array.shape[-1] > 1:
            found.append({**given, tensor: np.asfortranarray(array)})
            padded = np.zeros((*array.shape[:-1], array.shape[-1] + 3), array.dtype)[..., : array.shape[-1]]
            padded[...] = array
            found.append({**given, tensor: padded})
    return found


def refusal_of_the_launcher(name: str, given: dict[str, Any]) -> str | None:
    try:
        observe(emitted(name).source, given, 2)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", KERNELS)
def test_refuses_what_the_launcher_refuses(name: str) -> None:
    made, refused = recipe(name), 0
    good = observe(emitted(name).source, inputs(name)[0], 2)
    for given in wrong_inputs(name):
        seen = {n: Seen(a.shape, tuple(s // a.itemsize for s in a.strides), 0) for n, a in given.items()}
        outputs = {one.name: good.seen[one.name] for one in made.outputs}
        ours = Evaluated(made, {**seen, **outputs}, 2).refusal
        theirs = refusal_of_the_launcher(name, given)
        refused += theirs is not None
        if theirs is None and ours is not None:
            # The launcher makes outputs to the inputs; here they have the extents of before.
            assert ours.startswith(tuple(f"tensor {output}" for output in outputs))
        else:
            assert ours == theirs
    assert refused


def empty(array: Any) -> Any:
    return array[:0]


def spread(array: Any) -> Any:
    """Elements of the last dimension two apart."""
    return np.repeat(array, 2, axis=-1)[..., ::2]


def turned(array: Any) -> Any:
    """The first two dimensions exchanged in memory."""
    return np.swapaxes(np.swapaxes(array, 0, 1).copy(), 0, 1)


def doubled(array: Any) -> Any:
    return np.repeat(array, 2, axis=-1)


def longer(array: Any) -> Any:
    return np.concatenate([array, array[:, :1]], axis=1)


def moved(array: Any) -> Any:
    """The same elements, of which the first is the second of its row in memory."""
    return np.pad(array, ((0, 0), (1, 7)))[:, 1:-7]


REFUSALS = [
    ("biased", "x", empty, "tensor x has no elements: its shape is [0, 264]"),
    ("biased", "x", spread, "tensor x: dimension 1 has to be contiguous"),
    ("biased", "b", spread, "tensor b: dimension 0 has to be contiguous"),
    ("biased", "b", doubled, "tensor b has extents [784], expected [392]"),
    ("biased", "x", lambda x: x[:, :260], "tensor w has extents [392, 264], expected [392, 260]"),
    ("biased", "x", moved, "tensor x has to start at a multiple of 16 bytes"),
    ("scaled", "rows", doubled, "tensor rows: dimension 1 has 2 elements, expected 1"),
    (
        "softmax",
        "x",
        lambda x: x[:, :504].copy(),
        "rows have 504 elements: this schedule reduces rows of 512",
    ),
    ("gated", "w", lambda w: w[:, :129].copy(), "tensor w: strides have to be multiples of 16 bytes"),
    ("causal", "q", turned, "tensor q: dimensions 0 and 1 do not lie contiguously"),
    ("grouped", "q", longer, "tensor q: dimension 1 has to be a multiple of 3"),
    ("split", "x", lambda x: x[:, :128].copy(), "tensor w has extents [392, 264], expected [392, 128]"),
]


@pytest.mark.parametrize(("name", "tensor", "change", "sentence"), REFUSALS)
def test_refuses_with_a_sentence(name: str, tensor: str, change: Any, sentence: str) -> None:
    (given, *_) = inputs(name)
    assert refusal_of_the_launcher(name, {**given, tensor: change(given[tensor])}) == sentence


@pytest.mark.parametrize("name", ["biased", "lse"])
def test_refuses_outputs_of_other_extents(name: str) -> None:
    made = recipe(name)
    good = observe(emitted(name).source, inputs(name)[0], 2)
    for output in made.outputs:
        seen = good.seen[output.name]
        for dim in range(len(seen.shape)):
            shape = tuple(n + 8 * (i == dim) for i, n in enumerate(seen.shape))
            strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
            changed = {**good.seen, output.name: Seen(shape, strides, seen.address)}
            refusal = Evaluated(made, changed, 2).refusal
            assert refusal is not None
            assert refusal.startswith(f"tensor {output.name} has extents [")


def test_refuses_addresses_that_the_kernel_was_not_compiled_for() -> None:
    made = recipe("biased")
    good = observe(emitted("biased").source, inputs("biased")[0], 2)
    for name in ("x", "b", "y"):
        seen = good.seen[name]
        changed = {**good.seen, name: Seen(seen.shape, seen.strides, seen.address + 2)}
        assert Evaluated(made, changed, 2).refusal == f"tensor {name} has to start at a multiple of 16 bytes"


# --- tensors and expressions ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_names_every_tensor_with_its_type(name: str) -> None:
    made, graph = recipe(name), emitted(name).graph
    assert {one.name for one in made.inputs} == {one.name for one in graph.inputs}
    for one in made.tensors:
        kind = graph.type_of(one.name)
        assert (one.dtype, one.rank) == (kind.dtype, len(kind.shape))
        assert one.dtype in TORCH_NAMES


def test_expressions_are_written_for_each_language() -> None:
    python, cpp = (replace(one, tensors={"x": "x"}) for one in (PYTHON, CPP))
    n, m = named("n"), named("m")
    rest = -named("row") + product(shape_of("x", 2)) // 4
    assert python(rest) == "(-row) + ((x.shape[0] * x.shape[1]) // 4)"
    assert cpp(rest) == "(-row) + ((tensors.x.shape[0] * tensors.x.shape[1]) / 4)"
    assert python(ceil_divide(n, 64) * 2) == "triton.cdiv(n, 64) * 2"
    assert cpp(product([named("a"), named("b") // 2, 3])) == "a * (b / 2) * 3"
    assert cpp((2 * n + -3 + m) // 4) == "((2 * n) - 3 + m) / 4"
    assert GLUON(minimum(-(5 + n), 7 * (m // n))) == "gl.minimum(-(5 + n), 7 * (m // n))"
    even = Expression("multiple_of", (n * 3, 2))
    assert (python(even), cpp(even)) == ("(n * 3) % 2 == 0", "(n * 3) % 2 != 0"), "C++ says when to refuse"
    assert (0 * n, n * 0, product([]), n * 1, 1 * n) == (0, 0, 1, n, n)
    assert (0 + n, n + 0, n // 1) == (n, n, n)
