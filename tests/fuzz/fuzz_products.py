"""Random graphs of products: operands of any kind, one or several products, any epilogue, reductions of rows."""

from __future__ import annotations

from dataclasses import dataclass

from fuzz_draft import Draft
from fuzz_steps import scaled, step, steps, store_some

from wsopt.graph.builder import Symbol

DTYPES = {"bf16": 8, "f16": 4, "f8e4m3": 2, "f8e5m2": 1, "i8": 0.2, "f32": 0.2}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Extents and element type of products: (lead, m, k) times (lead, k, n)."""

    lead: tuple[int, ...]
    m: int
    n: int
    k: int
    dtype: str

    @property
    def narrow(self) -> bool:
        return self.dtype in ("f8e4m3", "f8e5m2", "i8")


def sizes(d: Draft, most_columns: int = 2**31) -> Sizes:
    """Extents of products, and a type."""
    dtype = d.weighted(DTYPES)
    d.mark(f"product of {dtype}")
    rank = d.weighted({0: 8, 1: 2, 2: 0.5})
    if rank:
        d.mark("batch" if rank == 1 else "two batch axes")
    lead = tuple(d.pick((1, 2, 3, 5)) for _ in range(rank))
    m, n, k = d.extent(), d.extent(any_number=False, most=most_columns), d.extent(any_number=False)
    return Sizes(lead, m, n, k if dtype not in ("f8e4m3", "f8e5m2") else -(-k // 16) * 16, dtype)


def side(d: Draft, s: Sizes, hint: str, outer: int, *, left: bool) -> tuple[Symbol, bool]:
    """An operand and whether the product is to transpose it; it has `outer` rows (columns if not `left`)."""
    along = s.narrow and d.chance(0.95)
    contracted_last = along or d.chance(0.75)
    shape = (outer, s.k) if contracted_last else (s.k, outer)
    lead = s.lead
    if lead and not left and d.chance(0.4):
        d.mark("operand without batch")
        lead = d.pick(((), (1,) * len(lead)))
    x = d.tensor(hint, (*lead, *shape), s.dtype, constant=not left and d.chance(0.6))
    transposed = contracted_last != left
    if d.chance(0.08):
        d.mark("transpose node")
        rank = len(shape) + len(lead)
        x = d.g.transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))
        transposed = not transposed
    if transposed:
        d.mark("transpose_a" if left else "transpose_b")
    return x, transposed


def times(d: Draft, s: Sizes, left: tuple[Symbol, bool], right: tuple[Symbol, bool]) -> Symbol:
    """The product of two operands."""
    more: dict[str, str] = {"precision": d.pick(("tf32", "ieee"))} if s.dtype == "f32" else {}
    if s.narrow and d.chance(0.4):
        d.mark("accumulate fast")
        more["accumulate"] = "fast"
    return d.g.matmul(left[0], right[0], transpose_a=left[1], transpose_b=right[1], **more)


def products(d: Draft, s: Sizes) -> Symbol:
    """One product, or several that are combined at once."""
    left = side(d, s, "x", s.m, left=True)
    first = times(d, s, left, side(d, s, "w", s.n, left=False))
    kind = d.weighted({"one": 12, "gated": 2, "sum": 1, "apart": 0.3})
    d.mark(f"products {kind}")
    if kind == "one":
        return first
    again = left if kind == "gated" else side(d, s, "x", s.m, left=True)
    second = times(d, s, again, side(d, s, "w", s.n, left=False))
    if kind == "apart":
        d.g.output(d.g.cast(second, dtype="bf16", name=d.fresh("q")))
        return first
    return d.g.silu(scaled(d, first, s.k)) * second if kind == "gated" else first + second


def product_graph(d: Draft) -> None:
    """Products with an elementwise tree after them."""
    s = sizes(d)
    found = steps(d, scaled(d, products(d, s), s.k), 5)
    store_some(d, found)


def grouped_graph(d: Draft) -> None:
    """One or two products of rows in groups, with an elementwise tree after them."""
    dtype, groups = d.weighted({"bf16": 6, "f16": 2, "f8e4m3": 1}), d.pick((1, 2, 3, 5, 9))
    m, n, k = d.extent(), d.extent(any_number=False), d.extent(any_number=False)
    k = k if dtype != "f8e4m3" else -(-k // 16) * 16
    x, offsets = d.tensor("x", (m, k), dtype), d.tensor("offsets", (groups,), "i32", plain=True)

    def product() -> Symbol:
        along = dtype == "f8e4m3" or d.chance(0.7)
        shape = (groups, n, k) if along else (groups, k, n)
        return d.g.grouped_matmul(x, d.tensor("w", shape, dtype, constant=True), offsets, transpose_b=along)

    value = scaled(d, product(), k)
    if d.chance(0.3):
        d.mark("groups gated")
        value = d.g.silu(value) * product()
    store_some(d, steps(d, value, 3))


def reduced(d: Draft, value: Symbol) -> Symbol:
    """A value with its rows reduced and put back: a softmax, a norm, or one written out."""
    g, columns = d.g, value.shape[-1]
    kind = d.pick(("softmax", "rms_norm", "layer_norm", "centred", "over largest", "log softmax", "unit"))
    d.mark(f"rows {kind}")
    match kind:
        case "softmax":
            return g.softmax(value, axis=d.pick((-1, len(value.shape) - 1)))
        case "rms_norm":
            return g.rms_norm(value, d.source("weight", (columns,)))
        case "layer_norm":
            return g.layer_norm(value, d.source("weight", (columns,)), d.source("shift", (columns,)))
        case "centred":
            return value - g.reduce_mean(value, axis=-1, keepdims=True)
        case "over largest":
            return value / (g.reduce_max(g.abs(value), axis=-1, keepdims=True) + 0.25)
        case "log softmax":
            shifted = value - g.reduce_max(value, axis=-1, keepdims=True)
            return shifted - g.log(g.reduce_sum(g.exp(shifted), axis=-1, keepdims=True))
        case _:
            return value * g.rsqrt(g.reduce_sum(value * value, axis=-1, keepdims=True) + 1e-3)


def reduced_product_graph(d: Draft) -> None:
    """A product whose rows are reduced, with steps before and after."""
    s = sizes(d, most_columns=256 if d.chance(0.95) else 2**31)
    left = side(d, s, "x", s.m, left=True)
    value = scaled(d, times(d, s, left, side(d, s, "w", s.n, left=False)), s.k)
    value = reduced(d, step(d, value) if d.chance(0.5) else value)
    store_some(d, steps(d, value, 2))


def normed_product_graph(d: Draft) -> None:
    """Products of rows that are divided by their norm first."""
    s, g = sizes(d), d.g
    x = d.tensor("x", (*s.lead, s.m, s.k), s.dtype)
    power = g.reduce_mean(x * x, axis=-1, keepdims=True)
    normed = x * g.rsqrt(power + 1e-5)
    if d.chance(0.15):
        d.mark("weighted norm before a product")
        normed = normed * d.source("weight", (s.k,))
    left = g.cast(normed, dtype=s.dtype)
    count = d.weighted({1: 5, 2: 1, 3: 0.5})
    if count > 1:
        d.mark("several weights")
    for _ in range(count):
        columns = d.extent(any_number=False) if count > 1 else s.n
        value = times(d, s, (left, False), side(d, s, "w", columns, left=False))
        store_some(d, steps(d, value, 2))
