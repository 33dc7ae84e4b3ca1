"""The launcher of kernel.py: what its template is filled with, from the kernel's launch recipe."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from wsopt.emit.calls import calls
from wsopt.emit.integers import (
    PYTHON,
    Extent,
    IfOne,
    Integer,
    Name,
    Operation,
    multiply,
    names_in,
    rewritten,
    text,
)
from wsopt.emit.names import Names
from wsopt.emit.recipe import (
    LAST_ROW,
    PROCESSORS,
    ROW,
    Argument,
    Check,
    DealtOrder,
    Message,
    PointerArgument,
    Recipe,
    Relation,
    ScalarArgument,
    TableArgument,
    TensorMap,
    TensorSpec,
)
from wsopt.emit.tensors import SIGNATURE, TORCH
from wsopt.runtime.text import launcher_text, tile_order_text

_OWN_NAMES = frozenset({"INPUTS", "OUTPUTS", "blocks", "k_block_counts", "order_table"})
"""Names that `bind` uses, which the kernel's device functions may give to tensors."""

_HOLDS = {
    Relation.EQUAL: "{} == {}",
    Relation.AT_LEAST: "{} >= {}",
    Relation.AT_MOST: "{} <= {}",
    Relation.MULTIPLE: "{} % {} == 0",
}


def launcher_context(recipe: Recipe) -> dict[str, Any]:
    """Values for the launcher's template, by name."""
    scope = Names(taken=set(_OWN_NAMES))
    variables = {one.name: scope(one.name, one.name.lstrip("_") or "tensor") for one in recipe.tensors}
    return _Writer(recipe, variables, *_known(recipe, variables)).context()


def _known(
    recipe: Recipe, variables: Mapping[str, str]
) -> tuple[dict[Integer, Name], dict[tuple[Integer, ...], str]]:
    """Expressions that have a shorter text than their own, and lists of them: torch's, or variables of `bind`."""
    known: dict[Integer, Name] = {}
    lists: dict[tuple[Integer, ...], str] = {}
    for tensor in recipe.tensors:
        shape = tuple(Extent(tensor.name, dim) for dim in range(tensor.rank))
        lists[shape] = f"[*{variables[tensor.name]}.shape]"
        if tensor.rank > 1:
            known[multiply(*shape)] = Name(f"{variables[tensor.name]}.numel()")
    for one in recipe.maps:
        for values, variable in zip((one.extents, one.strides), _of_map(one), strict=True):
            lists.setdefault(values, variable)
            for place, value in enumerate(values):
                if isinstance(value, Operation | IfOne):
                    known.setdefault(value, Name(f"{variable}[{place}]"))
    return known, lists


def _of_map(one: TensorMap) -> tuple[str, str]:
    """The variables with the extents and the strides of a tensor map."""
    name = one.argument.removesuffix("_desc")
    return f"{name}_extents", f"{name}_strides"


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the parts of a recipe as Python; `variables` are the tensors' names in the text.

    `known` and `lists` are shorter texts of expressions and of lists of them.
    """

    recipe: Recipe
    variables: Mapping[str, str]
    known: Mapping[Integer, Name]
    lists: Mapping[tuple[Integer, ...], str]

    def context(self) -> dict[str, Any]:
        recipe = self.recipe
        return {
            "arguments": [self._argument(one) for one in recipe.arguments],
            "sizes": [f'"{one.argument}"' for one in recipe.arguments if isinstance(one, ScalarArgument)],
            "inputs": [self._tensor(one) for one in recipe.inputs],
            "outputs": [self._tensor(one) for one in recipe.outputs],
            "tensor_checks": list(self._checks(recipe.tensor_checks)),
            "counts_processors": any(PROCESSORS in names_in(value) for _, value in recipe.names),
            "names": [(name, self.write(value)) for name, value in recipe.names],
            "checks": list(self._checks(recipe.checks)),
            "maps": [self._map(one) for one in recipe.maps],
            "grid": self.write(recipe.grid),
            "order": self._order(recipe.order) if recipe.order else None,
            "returns": ", ".join(one.name for one in recipe.outputs),
            "launcher": launcher_text(),
            **calls([one.name for one in recipe.inputs]),
        }

    def write(self, value: Integer, *, plain: bool = False) -> str:
        """An expression as Python; a `plain` one has no other variables than the tensors."""
        return text(rewritten(value, self.variables, {} if plain else self.known), PYTHON)

    def _list(self, values: tuple[Integer, ...], *, plain: bool = False) -> str:
        if not plain and values in self.lists:
            return self.lists[values]
        return f"[{', '.join(self.write(value, plain=plain) for value in values)}]"

    def _tensor(self, tensor: TensorSpec) -> dict[str, Any]:
        return {
            "name": tensor.name,
            "variable": self.variables[tensor.name],
            "dtype": TORCH[tensor.dtype],
            "rank": tensor.rank,
            "make": "zeros" if tensor.zeroed else "empty",
            "shape": self._list(tensor.shape, plain=True),
        }

    def _checks(self, checks: Iterable[Check]) -> Iterator[tuple[str, str]]:
        """Conditions and what is said where they do not hold; those of one sentence are one."""
        for message, alike in groupby(checks, lambda check: check.message):
            conditions = [self._holds(check) for check in alike]
            if len(conditions) > 1:
                conditions = [f"({one})" if " or " in one else one for one in conditions]
            yield " and ".join(conditions), self._sentence(message)

    def _holds(self, check: Check) -> str:
        """The condition of a check. One that always holds along a single element has two ways to hold."""
        match check:
            case Check(IfOne(extent, one, other), Relation.EQUAL, right) if one == right:
                return f"{self.write(extent)} == 1 or {self.write(other)} == {self.write(right)}"
        left = self.write(check.left)
        if check.relation is Relation.MULTIPLE and isinstance(check.left, Operation):
            left = f"({left})"
        return _HOLDS[check.relation].format(left, self.write(check.right))

    def _sentence(self, message: Message) -> str:
        """A message as a string literal, with expressions in it where it has numbers."""
        formatted = any(not isinstance(part, str) for part in message)
        parts = []
        for part in message:
            if isinstance(part, str):
                parts.append(part.replace("{", "{{").replace("}", "}}") if formatted else part)
            else:
                parts.append(f"{{{self._list(part) if isinstance(part, tuple) else self.write(part)}}}")
        return ("f" if formatted else "") + json.dumps("".join(parts), ensure_ascii=False)

    def _map(self, one: TensorMap) -> dict[str, Any]:
        return {
            "argument": one.argument,
            "tensor": self.variables[one.tensor],
            "variables": _of_map(one),
            "extents": self._list(one.extents, plain=True),
            "strides": self._list(one.strides, plain=True),
            "block": list(one.block),
            "layout": one.layout,
        }

    def _argument(self, argument: Argument) -> dict[str, str]:
        """An argument: its name, its type in Triton's words as Python text, and what is passed for it."""
        match argument:
            case TensorMap(name, dtype=dtype, block=block, layout=layout):
                shape = ", ".join(map(str, block))
                described = f'f"tensordesc<{SIGNATURE[dtype]}[{shape}],{{{layout}.value!r}}>"'
                return {"name": name, "type": described, "passed": name}
            case PointerArgument(name, tensor, dtype):
                return {"name": name, "type": f'"*{SIGNATURE[dtype]}"', "passed": self.variables[tensor]}
            case ScalarArgument(name, value):
                return {"name": name, "type": '"i32"', "passed": self.write(value)}
            case TableArgument(name):
                return {"name": name, "type": '"*i32"', "passed": "order"}

    def _order(self, order: DealtOrder) -> dict[str, Any]:
        values = (order.rows, order.begin, order.end, order.tiles, order.blocks)
        return {
            "functions": tile_order_text(),
            "key": sorted({name for value in values for name in names_in(value)} - {ROW, LAST_ROW}),
            "rows": self.write(order.rows),
            "tile_rows": order.tile_rows,
            "begin": self.write(order.begin),
            "end": self.write(order.end),
            "longest_last": order.longest_last,
            "tiles": self.write(order.tiles),
            "blocks": self.write(order.blocks),
        }
