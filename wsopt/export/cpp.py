"""The C++ launcher of one kernel: values for its templates, from the recipe and the compiled kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from wsopt import __version__
from wsopt.emit import text as emitted
from wsopt.emit.integers import Expression, Writer
from wsopt.emit.recipe import (
    Check,
    DealtOrder,
    PointerArgument,
    Recipe,
    ScalarArgument,
    TensorMap,
    TensorSpec,
    Workspace,
)
from wsopt.export.binary import Binary
from wsopt.export.cpp_names import CPP, field_names, sentence
from wsopt.export.layout import ELEMENT_TYPES, Content, Parameter
from wsopt.program.tile_order import OVERHEAD_K_BLOCKS, WAVES_TOGETHER

_ENUMERATORS = {dtype: f"WSOPT_{dtype.name}" for dtype in ELEMENT_TYPES}
_SWIZZLES = {0: "CU_TENSOR_MAP_SWIZZLE_NONE"} | {n: f"CU_TENSOR_MAP_SWIZZLE_{n}B" for n in (32, 64, 128)}
_FNV_OFFSET, _FNV_PRIME = 14695981039346656037, 1099511628211


@dataclass(frozen=True, slots=True)
class CppWriter:
    """Writes the parts of one kernel's launcher; `write` knows the tensors' names in C++."""

    recipe: Recipe
    binary: Binary
    parameters: tuple[Parameter, ...]
    write: Writer

    def context(self) -> dict[str, Any]:
        """Values for the templates, by name."""
        recipe, binary = self.recipe, self.binary
        inputs, outputs = ([self._tensor(one) for one in part] for part in (recipe.inputs, recipe.outputs))
        return {
            "name": recipe.name,
            "symbol": binary.symbol,
            "target": binary.target,
            **_capability(binary.target),
            "cubin_bytes": len(binary.cubin),
            "cubin_digest": digest(binary.cubin),
            "threads": binary.threads,
            "shared_bytes": binary.compiled.shared_bytes,
            "inputs": inputs,
            "outputs": outputs,
            "tensors": [*inputs, *outputs],
            "tensor_checks": [self._check(one) for one in recipe.compiled_checks],
            "names": [(name, self.write(value)) for name, value in recipe.names],
            "checks": [self._check(one) for one in recipe.checks],
            "maps": self._maps(),
            "dimensions": sum(one.rank for one in recipe.maps),
            "pointers": [self.write(one.tensor) for one in self._pointers()],
            "scalars": [(one.argument, self.write(one.value)) for one in self._scalars()],
            "parameters": self._places(),
            "grid": [self.write(count) for count in recipe.grid],
            "order": self._order(recipe.order) if recipe.order else None,
            "workspaces": [self._workspace(one) for one in recipe.workspaces],
        }

    def _tensor(self, tensor: TensorSpec) -> dict[str, Any]:
        return {
            "name": tensor.name,
            "field": self.write(tensor.name),
            "dtype": tensor.dtype.value,
            "bytes": tensor.dtype.bits // 8,
            "enumerator": _ENUMERATORS[tensor.dtype],
            "rank": tensor.rank,
            "shape": [self.write(extent) for extent in tensor.shape],
        }

    def _check(self, check: Check) -> dict[str, str]:
        """A condition under which a tensor is refused, and the sentence for it."""
        fault = self.write(Expression(check.relation, (check.left, check.right)))
        return {"fault": fault, "message": sentence(check.message, self.write)}

    def _maps(self) -> list[dict[str, Any]]:
        found, first = [], 0
        for one in self.recipe.maps:
            found.append({"first": first, **self._map(one)})
            first += one.rank
        return found

    def _map(self, one: TensorMap) -> dict[str, Any]:
        return {
            "tensor": one.tensor,
            "field": self.write(one.tensor),
            "type": ELEMENT_TYPES[one.dtype][1],
            "element_bytes": one.dtype.bits // 8,
            "rank": one.rank,
            "box": one.box[::-1],
            "swizzle": _SWIZZLES[one.swizzle],
            "extents": [self.write(extent) for extent in one.extents],
            "strides": [self.write(stride) for stride in one.strides],
        }

    def _pointers(self) -> list[PointerArgument]:
        return [one for one in self.recipe.arguments if isinstance(one, PointerArgument)]

    def _scalars(self) -> list[ScalarArgument]:
        return [one for one in self.recipe.arguments if isinstance(one, ScalarArgument)]

    def _places(self) -> list[str]:
        """Where each parameter of the kernel lies in the launcher's arguments."""
        firsts, first = {}, 0
        for number, tensor_map in enumerate(self.recipe.maps):
            firsts[tensor_map.argument] = (number, first)
            first += tensor_map.rank
        pointers = [one.argument for one in self._pointers()]
        scalars = [one.argument for one in self._scalars()]
        workspaces = [one.argument for one in self.recipe.workspaces]
        found = []
        for one in self.parameters:
            number, first = firsts.get(one.argument, (0, 0))
            found.append(
                {
                    Content.TENSOR_MAP: f"maps[{number}]",
                    Content.EXTENT: f"extents[{first + one.dim}]",
                    Content.STRIDE: f"strides[{first + one.dim}]",
                    Content.POINTER: f"pointers[{_place(pointers, one.argument)}]",
                    Content.SCALAR: f"scalars[{_place(scalars, one.argument)}]",
                    Content.ORDER: "order",
                    Content.WORKSPACE: f"workspaces[{_place(workspaces, one.argument)}]",
                    Content.SCRATCH: "scratch",
                }[one.content]
            )
        return found

    def _workspace(self, one: Workspace) -> dict[str, Any]:
        return {
            "elements": self.write(one.elements),
            "bytes": one.dtype.bits // 8,
            "zeroed": one.zeroed,
        }

    def _order(self, order: DealtOrder) -> dict[str, Any]:
        return {
            "tile_rows": order.tile_rows,
            "begin": self.write(order.begin),
            "end": self.write(order.end),
            "longest_last": order.longest_last,
            "waves_together": WAVES_TOGETHER,
            "overhead": OVERHEAD_K_BLOCKS,
        }


def _place(names: list[str], name: str) -> int:
    return names.index(name) if name in names else 0


def _capability(target: str) -> dict[str, int]:
    """The compute capability that a target such as sm_90a is for, and no other."""
    found = re.fullmatch(r"sm_(\d+)(\d)[a-z]?", target)
    assert found is not None, target
    return {"major": int(found[1]), "minor": int(found[2])}


def digest(data: bytes) -> int:
    """FNV-1a of 64 bits, by which a launcher knows its cubin."""
    value = _FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME % 2**64
    return value


def launcher_files(recipe: Recipe, binary: Binary, parameters: tuple[Parameter, ...]) -> dict[str, str]:
    """The launcher's texts by file name: header, source, an example, and how to use them."""
    write = replace(CPP, tensors=field_names(tensor.name for tensor in recipe.tensors))
    context = CppWriter(recipe, binary, parameters, write).context()
    environment = emitted.environment()

    def filled(template: str) -> str:
        return environment.get_template(f"export/{template}").render(kernel=context, version=__version__)

    return {
        "wsopt_launch.h": filled("wsopt_launch.h"),
        f"{recipe.name}.h": filled("launcher.h.jinja"),
        f"{recipe.name}.cpp": filled("launcher.cpp.jinja"),
        "example.cpp": filled("example.cpp.jinja"),
        "README.md": filled("README.md.jinja"),
    }
