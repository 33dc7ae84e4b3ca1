"""Elementwise steps on a value of any graph: numbers, tensors, functions, masks, casts. One function a feature."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fuzz_draft import Draft

from wsopt.graph.builder import Symbol

Step = Callable[[Draft, Symbol], Symbol]


def combined(d: Draft, value: Symbol, other: Symbol | float) -> Symbol:
    """The value with another one: a sum, a difference, a product, a quotient, the larger or the smaller."""
    g = d.g
    op = d.pick(("add", "mul", "sub", "reversed", "maximum", "minimum", "div"))
    if op == "div":
        # A divisor that is near zero would make rounding errors as large as one likes.
        return g.div(value, g.add(g.abs(other), 0.5) if isinstance(other, Symbol) else other)
    if op == "reversed":
        return g.sub(other, value)
    return g.apply(op, [value, other], {})


def with_number(d: Draft, value: Symbol) -> Symbol:
    return combined(d, value, d.number())


def with_scalar(d: Draft, value: Symbol) -> Symbol:
    return combined(d, value, d.source("scalar", d.pick(((), (1,), (1, 1)))))


def with_row(d: Draft, value: Symbol) -> Symbol:
    columns = value.shape[-1]
    return combined(d, value, d.source("bias", d.pick(((columns,), (1, columns)))))


def with_column(d: Draft, value: Symbol) -> Symbol:
    lead = value.shape[:-2] if d.chance(0.5) else ()
    return combined(d, value, d.source("factor", (*lead, value.shape[-2], 1)))


def with_tile(d: Draft, value: Symbol) -> Symbol:
    shape = value.shape if d.chance(0.7) else value.shape[-2:]
    return combined(d, value, d.source("residual", shape))


def with_turned_tile(d: Draft, value: Symbol) -> Symbol:
    *lead, rows, columns = value.shape
    turned = d.source("turned", (*lead, columns, rows))
    rank = len(value.shape)
    return combined(d, value, d.g.transpose(turned, perm=(*range(rank - 2), rank - 1, rank - 2)))


def with_batch_factor(d: Draft, value: Symbol) -> Symbol:
    return combined(d, value, d.source("slope", (*value.shape[:-2], 1, 1)))


def function(d: Draft, value: Symbol) -> Symbol:
    name = d.pick(("relu", "silu", "sigmoid", "tanh", "abs", "neg", "erf", "sin", "cos", "gelu", "gelu_tanh"))
    d.mark(f"function {name}")
    if name == "gelu_tanh":
        return d.g.gelu(value, approximate="tanh")
    return d.g.apply(name, [value], {})


def guarded_function(d: Draft, value: Symbol) -> Symbol:
    """A function that has a pole or grows without bound, kept away from both."""
    g, name = d.g, d.pick(("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "reciprocal", "pow"))
    d.mark(f"function {name}")
    if name.startswith("exp"):
        return g.apply(name, [g.minimum(value, 2.0)], {})
    away = g.add(g.abs(value), 0.5)
    return g.pow(away, d.pick((2.0, 0.5, -1.0, 3.0, 1.7))) if name == "pow" else g.apply(name, [away], {})


def clamped(d: Draft, value: Symbol) -> Symbol:
    return d.g.minimum(d.g.maximum(value, -1.5), d.pick((0.0, 1.0, 6.0)))


def indices(d: Draft, value: Symbol) -> tuple[Symbol, Symbol]:
    """The indices of rows and columns of a value, in one of the shapes that people write."""
    rows, columns = value.shape[-2:]
    if d.chance(0.5):
        return d.g.iota(shape=(rows, 1), axis=0), d.g.iota(shape=(1, columns), axis=1)
    return tuple(d.g.iota(shape=(rows, columns), axis=axis) for axis in (0, 1))  # type: ignore[return-value]


def condition(d: Draft, value: Symbol) -> Symbol:
    """A condition on the indices of a value."""
    g = d.g
    i, j = indices(d, value)
    rows, columns = value.shape[-2:]
    kind = d.pick(("causal", "window", "limit", "first rows", "shifted", "either", "not", "diagonal"))
    d.mark(f"mask {kind}")
    match kind:
        case "causal":
            return j <= i
        case "window":
            return (j <= i) & (i - j < max(2, columns // 4))
        case "limit":
            return j < max(1, columns - 5)
        case "first rows":
            return i < max(1, rows - 3)
        case "shifted":
            return j <= i + d.pick((-3, 5, columns - rows))
        case "either":
            return (j < 3) | (i > rows // 2)
        case "not":
            return ~(j > i)
        case _:
            return g.not_equal(i, j)


def masked(d: Draft, value: Symbol) -> Symbol:
    return d.g.where(condition(d, value), value, d.pick((0.0, -2.0, 1.0)))


def chosen_tile(d: Draft, value: Symbol) -> Symbol:
    """Where the mask holds the value, elsewhere a row of its own."""
    return d.g.where(condition(d, value), value, d.source("other", (value.shape[-1],)))


def masked_by_tensor(d: Draft, value: Symbol) -> Symbol:
    mask = d.tensor("mask", value.shape[-2:], d.pick(("bool", "f32", "bf16")))
    return d.g.where(mask if mask.dtype.value == "bool" else mask > 0.0, value, 0.0)


def threshold(d: Draft, value: Symbol) -> Symbol:
    """A choice by the value itself, which jumps at the threshold."""
    return d.g.where(
        d.g.apply(d.pick(("greater", "less_equal")), [value, 0.1], {}), value, d.pick((0.0, 0.1))
    )


def with_index(d: Draft, value: Symbol) -> Symbol:
    index = d.pick(indices(d, value))
    return value + d.g.cast(index, dtype="f32") * 0.01


def with_distance(d: Draft, value: Symbol) -> Symbol:
    i, j = indices(d, value)
    return value - d.g.cast(d.g.abs(i - j), dtype="f32") * 0.05


def rounded(d: Draft, value: Symbol) -> Symbol:
    return d.g.cast(value, dtype=d.pick(("bf16", "f16", "f32")))


def with_itself(d: Draft, value: Symbol) -> Symbol:
    return d.g.mul(d.g.sigmoid(value), value)


STEPS: Mapping[str, tuple[float, Step]] = {
    "number": (4, with_number),
    "scalar tensor": (2, with_scalar),
    "row vector": (4, with_row),
    "column vector": (3, with_column),
    "full tensor": (3, with_tile),
    "transposed full tensor": (0.4, with_turned_tile),
    "batch factor": (0.6, with_batch_factor),
    "function": (5, function),
    "guarded function": (3, guarded_function),
    "clamp": (1, clamped),
    "mask": (3, masked),
    "choice of a row": (0.7, chosen_tile),
    "mask by tensor": (0.6, masked_by_tensor),
    "threshold": (0.5, threshold),
    "index as value": (1, with_index),
    "distance as value": (0.7, with_distance),
    "cast between": (1.5, rounded),
    "value used twice": (1, with_itself),
}
"""Steps by the feature that they are, each with its weight."""


def step(d: Draft, value: Symbol) -> Symbol:
    """One step more."""
    kind = d.weighted({name: weight for name, (weight, _) in STEPS.items()})
    d.mark(kind)
    return STEPS[kind][1](d, value)


def steps(d: Draft, value: Symbol, most: int) -> list[Symbol]:
    """The value, and what up to `most` steps make of it, one after the other."""
    found = [value]
    for _ in range(int(d.rng.integers(most + 1))):
        found.append(step(d, found[-1]))
    return found


def scaled(d: Draft, value: Symbol, extent: int) -> Symbol:
    """A sum of `extent` products, brought near one, as programs do; a third of them are left as they are."""
    return value * float(extent**-0.5) if d.chance(0.7) else value


OUTPUTS = {"bf16": 6, "f16": 3, "f32": 2, "f8e4m3": 1, "f8e5m2": 0.5, "none": 0.7, "i32": 0.05, "i8": 0.05}


def store(d: Draft, value: Symbol, hint: str = "y") -> None:
    """Make a value an output of the graph, in some type."""
    dtype = d.weighted(OUTPUTS)
    d.mark(f"output {dtype}")
    name = d.fresh(hint)
    if dtype == "none":
        d.g.output(d.g.mul(value, 1.0, name=name))
    else:
        d.g.output(d.g.cast(value, dtype=dtype, name=name))


def store_some(d: Draft, found: list[Symbol]) -> None:
    """Store the last value, and now and then others beside it."""
    store(d, found[-1])
    while len(found) > 1 and d.chance(0.2):
        d.mark("several outputs")
        store(d, d.pick(found[:-1]), "z")
