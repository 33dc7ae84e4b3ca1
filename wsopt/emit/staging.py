"""Buffers that outputs are staged in: a consumer's own by kind, and what each call of the epilogue is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wsopt.emit.tensors import Box
from wsopt.perf.stores import Buffer, Kind, Stores, kind, staging_buffers, tile_stores
from wsopt.program.program import Iteration, TileProgram
from wsopt.schedule.types import EpilogueBuffers


@dataclass(frozen=True, slots=True)
class Pool:
    """The staging buffers of one consumer for the outputs of one kind."""

    name: str
    box: Box
    count: int


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """How one output's tiles are staged: `buffer` is what the text calls the buffer, `waits` has how many stores may
    still be reading when a subtile is written there, None where it does not wait. `number` is a subtile's store among
    the tile's, as the epilogue says it.
    """

    box: Box
    buffer: str
    number: str
    waits: frozenset[int | None]

    @property
    def differs(self) -> bool:
        """Whether the epilogue has to be told how many, or that there are none to wait for."""
        return len(self.waits) > 1

    @property
    def pending(self) -> str:
        """How many stores may still be reading, as the epilogue says it; empty if no subtile has to wait."""
        if self.differs:
            return f"{self.box.name}_pending"
        return "".join(str(one) for one in self.waits if one is not None)


@dataclass(frozen=True, slots=True)
class Staging:
    """Everything about the buffers of a tile's stores, by output. `lent` are full inputs whose buffers serve, `pools`
    those besides, by kind or by output."""

    plan: Stores
    outputs: Mapping[str, StagedOutput]
    lent: Mapping[str, Box]
    pools: Mapping[Kind | str, Pool]

    def constants(self) -> list[str]:
        """Parameters of the epilogue that are known when the kernel is compiled."""
        return [output.pending for output in self.outputs.values() if output.differs]

    def given(self, subtile: int) -> dict[str, str]:
        """The arguments of one subtile's call, by parameter."""
        found: dict[str, str] = {}
        for store in (one for one in self.plan.stores if one.subtile == subtile):
            output = self.outputs[store.output]
            found |= {output.buffer: self.place(store.buffer), output.pending: str(store.pending)}
        return found

    def place(self, buffer: Buffer) -> str:
        """The buffer of a store, in the consumer's own names."""
        owner = f"{self.lent[buffer.source].name}_input" if buffer.source else self.pools[buffer.kind].name
        return f"{owner}.index({buffer.number})"


def staging(
    program: TileProgram, buffers: EpilogueBuffers, inputs: Mapping[str, Box], outputs: Mapping[str, Box]
) -> Staging:
    """Staging of a tile's outputs; `inputs` and `outputs` are the boxes by source and by output."""
    if program.iteration is Iteration.TILE:
        return _by_tile(outputs, buffers.staging)
    plan, staged = tile_stores(program, buffers), {}
    for place, (name, box) in enumerate(outputs.items()):
        number = f"subtile * {len(outputs)}" if len(outputs) > 1 else "subtile"
        number += f" + {place}" if place else ""
        waits = frozenset(store.pending for store in plan.stores if store.output == name)
        staged[name] = StagedOutput(box, f"{box.name}_buffer", number, waits)
    used = {store.buffer.source for store in plan.stores}
    lent = {source: box for source, box in inputs.items() if source in used}
    counts, pools = staging_buffers(program, buffers), dict[Kind | str, Pool]()
    for output in program.after.tile_outputs:
        box, one = outputs[output.name], kind(output.view)
        if counts[one] and one not in pools:
            same = sum(pool.box.view.dtype is box.view.dtype for pool in pools.values())
            name = f"{box.view.dtype.value}{f'_{same}' if same else ''}_staging"
            pools[one] = Pool(name, box, counts[one])
    return Staging(plan, staged, lent, pools)


def _by_tile(outputs: Mapping[str, Box], count: int) -> Staging:
    """Staging of tiles that are iterations of the loop: each output in `count` buffers of its own, by turns."""
    slot = "0" if count == 1 else f"step % {count}"
    waits, staged, pools = frozenset({len(outputs) * count - 1}), {}, dict[Kind | str, Pool]()
    for name, box in outputs.items():
        pools[name] = Pool(f"{box.name}_staging", box, count)
        staged[name] = StagedOutput(box, f"{box.name}_staging.index({slot})", "", waits)
    return Staging(Stores((), None), staged, {}, pools)
