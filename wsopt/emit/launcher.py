"""The launcher of kernel.py: what its template is filled with, from the kernel's launch recipe."""

from __future__ import annotations

import json
import keyword
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from wsopt.emit.integers import PYTHON, Expression, Integer, Writer, product, shape_of
from wsopt.emit.names import Names
from wsopt.emit.recipe import (
    Argument,
    Check,
    DealtOrder,
    Message,
    PointerArgument,
    Recipe,
    ScalarArgument,
    TensorMap,
    Workspace,
)
from wsopt.emit.tensors import GLUON, SIGNATURE, TORCH
from wsopt.graph.types import DType
from wsopt.runtime.text import launcher_text, packing_text, tile_order_text, workspace_text
from wsopt.tensors.views import Packing

_OWN_NAMES = frozenset({"INPUTS", "OUTPUTS", "blocks", "k_block_counts", "order_table"})
"""Names that `bind` uses, which the kernel's device functions may give to tensors."""

_WORKSPACE_NAMES = frozenset({"workspace", "arrivals", "parts", "taken"})
"""The same where a launch has a workspace."""

_PACKINGS = {DType.I4: "four_bits", DType.I8: "eight_bits"}
"""What fragments of a type are called by what packs them."""

_PARAMETERS = frozenset({"out", "unused"})
"""Parameters of `run` besides the inputs."""


def launcher_context(recipe: Recipe) -> dict[str, Any]:
    """Values for the launcher's template, by name."""
    own = {name for name, _ in recipe.names}
    scope = Names(taken=set(_OWN_NAMES | own | (_WORKSPACE_NAMES if recipe.workspaces else frozenset())))
    variables = {one.name: scope(one.name, _variable(one.name)) for one in recipe.tensors}
    plain, lists = replace(PYTHON, tensors=variables), _map_variables(recipe.maps)
    seen = dict[tuple[str, str], TensorMap]()
    for one in recipe.maps:
        seen.setdefault(lists[one.argument], one)
    return {
        "recipe": recipe,
        "variables": variables,
        "plain": _Text(plain, {}),
        "text": _Text(*_known(recipe, plain)),
        "sizes": [f'"{one.argument}"' for one in recipe.arguments if isinstance(one, ScalarArgument)],
        "dtypes": TORCH,
        "map_variables": lists,
        "seen": seen.items(),
        "tile_order": tile_order_text(),
        "launcher": launcher_text(),
        "workspace": workspace_text() if recipe.workspaces else None,
        "packing": packing_text() if recipe.packed else None,
        "packed": [
            (one.tensor, _PACKINGS[one.dtype] if one.packing is Packing.FRAGMENTS else one.packing.value)
            for one in recipe.packed
        ],
        **calls([one.name for one in recipe.inputs]),
    }


def _variable(name: str) -> str:
    """What a tensor is called in `bind`: without underscores in front, and no number where nothing else is left."""
    plain = name.lstrip("_")
    return plain if plain.isidentifier() else f"tensor{plain}"


def calls(inputs: Sequence[str]) -> dict[str, Any]:
    """Values on calls of `run`. Inputs are parameters of `run`, unless Python reserves one's name."""
    named = not any(keyword.iskeyword(name) or name.startswith("_") or name in _PARAMETERS for name in inputs)
    parameters = list(inputs) if named else [f"tensor_{number}" for number, _ in enumerate(inputs)]
    takes_out = "out" not in inputs
    if named:
        run = f"*, {', '.join(parameters)}, out=None, **unused"
    else:
        run = "*, out=None, **tensors" if takes_out else "**tensors"
    return {
        "named_inputs": named,
        "safe_inputs": parameters,
        "parameters_of_inputs": ", ".join(parameters),
        "takes_out": takes_out,
        "run_parameters": run,
    }


def _known(recipe: Recipe, plain: Writer) -> tuple[Writer, dict[tuple[Integer, ...], str]]:
    """A writer that knows shorter texts of expressions, and lists of them: torch's, or variables of `bind`."""
    known, named = dict[Integer, str](), _map_variables(recipe.maps)
    lists: dict[tuple[Integer, ...], str] = {}
    for tensor in recipe.tensors:
        shape, variable = shape_of(tensor.name, tensor.rank), plain(tensor.name)
        lists[shape] = f"[*{variable}.shape]"
        if tensor.rank > 1:
            known[product(shape)] = f"{variable}.numel()"
    for one in recipe.maps:
        for values, variable in zip((one.extents, one.strides), named[one.argument], strict=True):
            lists.setdefault(values, variable)
            for place, value in enumerate(values):
                if isinstance(value, Expression) and not isinstance(value.operands[0], str):
                    known.setdefault(value, f"{variable}[{place}]")
    return replace(plain, known=known), lists


def _map_variables(maps: Iterable[TensorMap]) -> dict[str, tuple[str, str]]:
    """The variables with the extents and the strides of each tensor map, by its argument. Maps that see their tensor
    alike, such as those of a tile's parts, share them.
    """
    found, first = dict[str, tuple[str, str]](), dict[tuple[object, ...], tuple[str, str]]()
    for one in maps:
        name = one.argument.removesuffix("_desc")
        own = f"{name}_extents", f"{name}_strides"
        found[one.argument] = first.setdefault((one.tensor, one.extents, one.strides), own)
    return found


@dataclass(frozen=True, slots=True)
class _Text:
    """The parts of a recipe as Python. `lists` have shorter texts than their own."""

    write: Writer
    lists: Mapping[tuple[Integer, ...], str]

    def of(self, value: Integer | tuple[Integer, ...]) -> str:
        """An expression, or a list of them."""
        if not isinstance(value, tuple):
            return self.write(value)
        return self.lists.get(value) or f"[{', '.join(map(self.write, value))}]"

    def checks(self, checks: Iterable[Check]) -> Iterator[tuple[str, str]]:
        """Conditions and what is said where they do not hold; those of one sentence are one."""
        for message, alike in groupby(checks, lambda check: check.message):
            conditions = [self._holds(check) for check in alike]
            if len(conditions) > 1:
                conditions = [f"({one})" if " or " in one else one for one in conditions]
            yield " and ".join(conditions), self._sentence(message)

    def _holds(self, check: Check) -> str:
        """The condition of a check. One that always holds along a single element has two ways to hold."""
        match check:
            case Check(Expression("if_one", (extent, one, other)), "equal", right) if one == right:
                return f"{self.write(extent)} == 1 or {self.write(other)} == {self.write(right)}"
        return self.write(Expression(check.relation, (check.left, check.right)))

    def _sentence(self, message: Message) -> str:
        """A message as a string literal, with expressions in it where it has numbers."""
        parts = [part if isinstance(part, str) else f"{{{self.of(part)}}}" for part in message]
        formatted = any(not isinstance(part, str) for part in message)
        return ("f" if formatted else "") + json.dumps("".join(parts), ensure_ascii=False)

    def passed(self, tensor: str, dtype: DType) -> str:
        """A tensor as the kernel takes it: bools as the bytes that they are."""
        own = self.write(tensor)
        return f"triton.reinterpret({own}, {GLUON[dtype]})" if dtype is DType.BOOL else own

    def described(self, one: TensorMap) -> str:
        """A tensor as its tensor map takes it: packed fragments as words."""
        return f"_words({self.write(one.tensor)})" if one.words else self.passed(one.tensor, one.dtype)

    def argument(self, argument: Argument) -> dict[str, str]:
        """An argument's type in Triton's words as Python text, and what is passed for it."""
        match argument:
            case TensorMap(name, dtype=dtype, block=block, layout=layout, words=words):
                shape, kind = ", ".join(map(str, block)), "i16" if words else SIGNATURE[dtype]
                described = f'f"tensordesc<{kind}[{shape}],{{{layout}.value!r}}>"'
                return {"type": described, "passed": name}
            case PointerArgument(_, tensor, dtype):
                return {"type": f'"*{SIGNATURE[dtype]}"', "passed": self.passed(tensor, dtype)}
            case ScalarArgument(_, value):
                return {"type": '"i32"', "passed": self.write(value)}
            case DealtOrder():
                return {"type": '"*i32"', "passed": "order"}
            case Workspace(name, dtype):
                return {"type": f'"*{SIGNATURE[dtype]}"', "passed": name.removesuffix("_ptr")}
