"""launch.json: all that a launch needs, for launchers in any language (docs/export.md says how to read it)."""

from __future__ import annotations

import json
from typing import Any

from wsopt import __version__
from wsopt.emit.integers import Expression
from wsopt.emit.recipe import (
    Check,
    DealtOrder,
    Message,
    PointerArgument,
    Recipe,
    TensorMap,
    TensorSpec,
    Workspace,
)
from wsopt.export.binary import Binary
from wsopt.export.layout import ELEMENT_TYPES, Parameter
from wsopt.program.launch_grid import AXES
from wsopt.program.tile_order import WAVES_TOGETHER

FORMAT = "wsopt.launch/1"

_SWIZZLES = {0: (0, "NONE"), 32: (1, "32B"), 64: (2, "64B"), 128: (3, "128B")}


def launch_document(recipe: Recipe, binary: Binary, parameters: tuple[Parameter, ...]) -> str:
    """The text of launch.json."""
    document = {
        "format": FORMAT,
        "name": recipe.name,
        "kernel": _kernel(recipe, binary),
        "inputs": [_tensor(one) for one in recipe.inputs],
        "outputs": [{**_tensor(one), "shape": [data(n) for n in one.shape]} for one in recipe.outputs],
        "tensor_checks": [_check(one) for one in recipe.compiled_checks],
        "names": [{"name": name, "value": data(value)} for name, value in recipe.names],
        "checks": [_check(one) for one in recipe.checks],
        "tensor_maps": [_tensor_map(one) for one in recipe.maps],
        "order": _order(recipe.order) if recipe.order else None,
        "workspaces": [_workspace(one) for one in recipe.workspaces],
        "parameters": [_parameter(recipe, one) for one in parameters],
    }
    return _written(document)


def _written(document: dict[str, Any]) -> str:
    """JSON in which every item of a list of the document's own has a line."""
    parts = []
    for key, value in document.items():
        items = [f"  {json.dumps(one)}" for one in value] if isinstance(value, list) else []
        written = "[\n" + ",\n".join(items) + "\n ]" if items else json.dumps(value)
        parts.append(f" {json.dumps(key)}: {written}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _kernel(recipe: Recipe, binary: Binary) -> dict[str, Any]:
    return {
        "file": f"{recipe.name}.cubin",
        "symbol": binary.symbol,
        "target": binary.target,
        "grid": [*map(data, recipe.grid), *[1] * (AXES - len(recipe.grid))],
        "block": [binary.threads, 1, 1],
        "dynamic_shared_bytes": binary.compiled.shared_bytes,
        "registers": binary.compiled.registers,
        "attributes": {"CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION": 1},
        "triton": binary.compiled.triton_version,
        "wsopt": __version__,
    }


def _tensor(tensor: TensorSpec) -> dict[str, Any]:
    return {"name": tensor.name, "dtype": tensor.dtype.value, "rank": tensor.rank}


def _check(check: Check) -> dict[str, Any]:
    return {
        "left": data(check.left),
        "relation": check.relation,
        "right": data(check.right),
        "message": _message(check.message),
    }


def data(value: int | str | Expression) -> Any:
    """JSON: a number, a name as a string, else an array that begins with what it is."""
    match value:
        case Expression("name", (name,)):
            return name
        case Expression(operator, operands):
            return [operator, *map(data, operands)]
        case _:
            return value


def _message(message: Message) -> list[Any]:
    """Text as strings; a number's expression as {"value": ...}, a list of them as {"values": ...}."""
    found: list[Any] = []
    for part in message:
        if isinstance(part, tuple):
            found.append({"values": [data(one) for one in part]})
        else:
            found.append(part if isinstance(part, str) else {"value": data(part)})
    return found


def _tensor_map(one: TensorMap) -> dict[str, Any]:
    """The arguments of cuTensorMapEncodeTiled, dimensions outermost first (the driver takes them innermost first)."""
    number, name = ELEMENT_TYPES[one.dtype]
    swizzle, swizzle_name = _SWIZZLES[one.swizzle]
    return {
        "argument": one.argument,
        "tensor": one.tensor,
        "data_type": {"name": name, "value": number},
        "rank": one.rank,
        "dimensions": [data(extent) for extent in one.extents],
        "strides": [data(stride) for stride in one.strides],
        "element_bytes": one.dtype.bits // 8,
        "box": list(one.box),
        "element_strides": [1] * one.rank,
        "interleave": {"name": "CU_TENSOR_MAP_INTERLEAVE_NONE", "value": 0},
        "swizzle": {"name": f"CU_TENSOR_MAP_SWIZZLE_{swizzle_name}", "value": swizzle},
        "l2_promotion": {"name": "CU_TENSOR_MAP_L2_PROMOTION_L2_128B", "value": 2},
        "oob_fill": {"name": "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE", "value": 0},
    }


def _order(order: DealtOrder) -> dict[str, Any]:
    return {
        "element": "i32",
        "tile_rows": order.tile_rows,
        "longest_last": order.longest_last,
        "waves_together": WAVES_TOGETHER,
        "rows": "row_extent",
        "begin": data(order.begin),
        "end": data(order.end),
        "tiles": "tiles",
        "blocks": "blocks",
    }


def _workspace(one: Workspace) -> dict[str, Any]:
    return {
        "argument": one.argument,
        "element": one.dtype.value,
        "elements": data(one.elements),
        "zeroed": one.zeroed,
    }


def _parameter(recipe: Recipe, one: Parameter) -> dict[str, Any]:
    found: dict[str, Any] = {
        "content": one.content.value,
        "argument": one.argument,
        "offset": one.offset,
        "size": one.size,
    }
    if one.value is not None:
        found["value"] = data(one.value)
    for argument in recipe.arguments:
        if isinstance(argument, TensorMap | PointerArgument) and argument.argument == one.argument:
            found["tensor"] = argument.tensor
    return found
