"""Buffers that outputs are staged in: a consumer's own by kind, and what each call of the epilogue is given."""

from __future__ import annotations

from dataclasses import dataclass

from wsopt.emit.tensors import Box
from wsopt.perf.stores import Buffer, Store, Stores, staging_buffers
from wsopt.program.program import TileProgram
from wsopt.program.staging import Kind, kind
from wsopt.schedule.types import EpilogueBuffers


@dataclass(frozen=True, slots=True)
class Pool:
    """The staging buffers of one consumer for the outputs of one kind."""

    name: str
    box: Box
    count: int


def staging_pools(
    program: TileProgram, buffers: EpilogueBuffers, outputs: dict[str, Box]
) -> dict[Kind, Pool]:
    """Staging buffers by kind, without kinds that need none; `outputs` are the boxes by output."""
    counts, found = staging_buffers(program, buffers), dict[Kind, Pool]()
    for output in program.region.tile_outputs:
        box, one = outputs[output.name], kind(output.view)
        if counts[one] and one not in found:
            same = sum(pool.box.view.dtype is box.view.dtype for pool in found.values())
            name = f"{box.view.dtype.value}{f'_{same}' if same else ''}_staging"
            found[one] = Pool(name, box, counts[one])
    return found


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """How one output's tiles are staged: `buffer` is the epilogue's name for it, `waits` what each piece has to
    wait for, None for nothing. `number` is a piece's store among the tile's, as the epilogue says it.
    """

    box: Box
    waits: tuple[int | None, ...]
    number: str
    by_store_warp: bool

    @property
    def buffer(self) -> str:
        """The epilogue's name of the buffer."""
        return f"{self.box.name}_buffer"

    @property
    def pending(self) -> str:
        """How many stores may still be reading, as the epilogue says it; empty if no piece has to wait."""
        if set(self.waits) == {None}:
            return ""
        return str(self.waits[0]) if len(set(self.waits)) == 1 else f"{self.box.name}_pending"

    @property
    def awaited(self) -> str:
        """The number of the store that a piece waits for, as the epilogue says it."""
        if self.pending.isdigit():
            return f"{self.number} - {int(self.pending) + 1}"
        return f"{self.number} - 1 - {self.pending}"

    @property
    def differs(self) -> bool:
        """Whether the epilogue has to be told how many, or that there are none to wait for."""
        return len(set(self.waits)) > 1

    @property
    def optional(self) -> bool:
        """Whether some pieces have nothing to wait for, and others do."""
        return self.differs and None in self.waits


@dataclass(frozen=True, slots=True)
class Staging:
    """Everything about the buffers of a tile's stores, by output; `barriers` are those that the consumer shares with
    its store warp, if it has one.
    """

    plan: Stores
    outputs: dict[str, StagedOutput]
    inputs: dict[str, Box]
    pools: dict[Kind, Pool]
    barriers: tuple[str, ...]

    def parameters(self) -> list[str]:
        """What the epilogue is given of them."""
        buffers = [output.buffer for output in self.outputs.values()]
        return buffers + [f"{o.pending}: gl.constexpr" for o in self.outputs.values() if o.differs]

    def given(self, piece: int) -> dict[str, str]:
        """The arguments of one piece's call, by parameter."""
        found = {}
        for store in (one for one in self.plan.stores if one.piece == piece):
            output = self.outputs[store.output]
            found[output.buffer] = self.place(store.buffer)
            if output.differs:
                found[output.pending] = str(store.pending)
        return found

    def place(self, buffer: Buffer) -> str:
        """The buffer of a store, in the consumer's own names."""
        owner = f"{self.inputs[buffer.source].name}_input" if buffer.source else self.pools[buffer.kind].name
        return f"{owner}.index({buffer.number})"


def staged_outputs(
    stores: tuple[Store, ...], outputs: dict[str, Box], *, by_store_warp: bool
) -> dict[str, StagedOutput]:
    """How each output is staged, by name."""
    found = {}
    for place, (name, box) in enumerate(outputs.items()):
        waits = tuple(store.pending for store in stores if store.output == name)
        number = f"piece * {len(outputs)}" if len(outputs) > 1 else "piece"
        number += f" + {place}" if place else ""
        found[name] = StagedOutput(box, waits, number, by_store_warp)
    return found
