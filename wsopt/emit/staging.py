"""Buffers that outputs are staged in: a consumer's own by kind, and what each call of the epilogue is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wsopt.emit.tensors import Box
from wsopt.perf.stores import Buffer, Kind, Store, Stores, kind, staging_buffers, tile_stores
from wsopt.program.program import TileProgram
from wsopt.schedule.types import EpilogueBuffers


@dataclass(frozen=True, slots=True)
class Pool:
    """The staging buffers of one consumer for the outputs of one kind."""

    name: str
    box: Box
    count: int


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """How one output's tiles are staged: `buffer` is what the text calls the buffer, `waits` what each subtile has to
    wait for, None for nothing. `number` is a subtile's store among the tile's, as the epilogue says it.
    """

    box: Box
    buffer: str
    waits: tuple[int | None, ...]
    number: str = ""

    @property
    def pending(self) -> str:
        """How many stores may still be reading, as the epilogue says it; empty if no subtile has to wait."""
        if set(self.waits) == {None}:
            return ""
        return f"{self.box.name}_pending" if self.differs else str(self.waits[0])

    @property
    def awaited(self) -> str:
        """The number of the store that a subtile waits for, as the epilogue says it."""
        if self.differs:
            return f"{self.number} - 1 - {self.pending}"
        return f"{self.number} - {(self.waits[0] or 0) + 1}"

    @property
    def differs(self) -> bool:
        """Whether the epilogue has to be told how many, or that there are none to wait for."""
        return len(set(self.waits)) > 1

    @property
    def optional(self) -> bool:
        """Whether some subtiles have nothing to wait for, and others do."""
        return self.differs and None in self.waits


@dataclass(frozen=True, slots=True)
class Staging:
    """Everything about the buffers of a tile's stores, by output. `lent` are full inputs whose buffers serve, `pools`
    those besides, by kind or by output."""

    plan: Stores
    outputs: Mapping[str, StagedOutput]
    lent: Mapping[str, Box]
    pools: Mapping[Kind | str, Pool]

    def parameters(self) -> list[str]:
        """Parameters of the epilogue for its buffers."""
        buffers = [output.buffer for output in self.outputs.values()]
        return buffers + self.constants()

    def constants(self) -> list[str]:
        """Parameters that are known when the kernel is compiled."""
        return [output.pending for output in self.outputs.values() if output.differs]

    def given(self, subtile: int) -> dict[str, str]:
        """The arguments of one subtile's call, by parameter."""
        found = {}
        for store in (one for one in self.plan.stores if one.subtile == subtile):
            output = self.outputs[store.output]
            found[output.buffer] = self.place(store.buffer)
            if output.differs:
                found[output.pending] = str(store.pending)
        return found

    def place(self, buffer: Buffer) -> str:
        """The buffer of a store, in the consumer's own names."""
        owner = f"{self.lent[buffer.source].name}_input" if buffer.source else self.pools[buffer.kind].name
        return f"{owner}.index({buffer.number})"


def staging(
    program: TileProgram, buffers: EpilogueBuffers, inputs: Mapping[str, Box], outputs: Mapping[str, Box]
) -> Staging:
    """Staging of an epilogue's subtiles; `inputs` and `outputs` are the boxes by source and by output."""
    plan = tile_stores(program, buffers)
    used = {store.buffer.source for store in plan.stores}
    lent = {source: box for source, box in inputs.items() if source in used}
    return Staging(plan, _staged(plan.stores, outputs), lent, _pools(program, buffers, outputs))


def _pools(
    program: TileProgram, buffers: EpilogueBuffers, outputs: Mapping[str, Box]
) -> dict[Kind | str, Pool]:
    """Staging buffers by kind, without kinds that need none."""
    counts, found = staging_buffers(program, buffers), dict[Kind | str, Pool]()
    for output in program.after.tile_outputs:
        box, one = outputs[output.name], kind(output.view)
        if counts[one] and one not in found:
            same = sum(pool.box.view.dtype is box.view.dtype for pool in found.values())
            name = f"{box.view.dtype.value}{f'_{same}' if same else ''}_staging"
            found[one] = Pool(name, box, counts[one])
    return found


def _staged(stores: tuple[Store, ...], outputs: Mapping[str, Box]) -> dict[str, StagedOutput]:
    """Staging of each output, by name."""
    found = {}
    for place, (name, box) in enumerate(outputs.items()):
        waits = tuple(store.pending for store in stores if store.output == name)
        number = f"subtile * {len(outputs)}" if len(outputs) > 1 else "subtile"
        number += f" + {place}" if place else ""
        found[name] = StagedOutput(box, f"{box.name}_buffer", waits, number)
    return found


def staged_by_tile(outputs: Mapping[str, Box], count: int) -> Staging:
    """Staging of tiles that are iterations of the loop: each output in `count` buffers of its own, by turns."""
    slot = "0" if count == 1 else f"step % {count}"
    waits = (len(outputs) * count - 1,)
    staged = {
        name: StagedOutput(box, f"{box.name}_staging.index({slot})", waits) for name, box in outputs.items()
    }
    pools: dict[Kind | str, Pool] = {
        name: Pool(f"{box.name}_staging", box, count) for name, box in outputs.items()
    }
    return Staging(Stores((), None), staged, {}, pools)
