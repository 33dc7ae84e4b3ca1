"""The arithmetic beside the products of a K-block as Gluon text: an operand's tile, its rows added up."""

from __future__ import annotations

from dataclasses import dataclass, field

from wsopt.emit.expressions import Operand, expression, in_f32
from wsopt.emit.instructions import Assign, Instruction
from wsopt.emit.names import Names
from wsopt.frontend.types import Reduction, Region, Statement, View
from wsopt.graph.types import DType
from wsopt.program.types import Structure


@dataclass(slots=True)
class BesideWriter:
    """Writes one K-block's work. `names` is the kernel's scope, in which the reductions are carried."""

    region: Region
    s: Structure
    names: Names
    operands: dict[str, Operand] = field(default_factory=dict)

    def carried(self) -> dict[str, str]:
        """The names of the reductions, by item."""
        found = {}
        for item in self.region.beside:
            if isinstance(item, Reduction):
                node, _, number = item.name.partition("$")
                found[item.name] = self.names(
                    f"beside:{item.name}", f"{node}_row{number if number != '0' else ''}"
                )
        return found

    def starts(self) -> tuple[Instruction, ...]:
        """What the reductions are before the first K-block of a tile."""
        starts = {"max": 'float("-inf")', "sum": "0"}
        kinds = {item.name: item.kind for item in self.region.beside if isinstance(item, Reduction)}
        return tuple(
            Assign(
                name,
                f"gl.full([CONSUMER_ROWS], {starts[kinds[item]]}, gl.float32, gl.SliceLayout(1, K_BLOCK_LAYOUT))",
            )
            for item, name in self.carried().items()
        )

    def k_block(self, tiles: dict[View, str]) -> tuple[Instruction, ...]:
        """One K-block, from the expressions of its tiles in shared memory."""
        found: list[Instruction] = []
        self.operands.clear()
        known: dict[View, str] = {}
        for tile in self.region.tiles:
            if tile.view not in known:
                known[tile.view] = self.names(f"k_block:{tile.view.tensor}", f"{tile.view.tensor}_k_block")
                text = f"{tiles[tile.view]}.load(K_BLOCK_LAYOUT).to(gl.float32)"
                found.append(Assign(known[tile.view], text))
            self.operands[tile.name] = Operand(known[tile.view], tile.spans, DType.F32)
        found += [self._item(item) for item in self.region.beside]
        return tuple(found)

    def _item(self, item: Statement | Reduction) -> Instruction:
        if isinstance(item, Reduction):
            name, value = self.carried()[item.name], in_f32(self.operands[item.value])
            if item.kind == "max":
                return Assign(name, f"gl.maximum({name}, gl.max({value}, axis=1))")
            return Assign(name, f"{name} + gl.sum({value}, axis=1)")
        terms = [self.operands[a] if isinstance(a, str) else a for a in item.args]
        name = self.names(f"k_block:{item.name}", item.name.replace("$", "_k_block"))
        self.operands[item.name] = Operand(name, item.spans, item.dtype)
        return Assign(name, expression(item, terms, self.s))
