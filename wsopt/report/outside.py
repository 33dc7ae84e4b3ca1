"""Section on choices that the search space did not have, and on how much of the machine stands idle for that."""

from __future__ import annotations

import math
from typing import assert_never

from wsopt.program.program import TileProgram
from wsopt.report.layout import counted, joined, percent, wrapped
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.outside import Absent, Outside
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.tensors.views import Role

_UNKNOWN = "This build is from before it was written down; compile it again."


def outside_section(verified: VerifiedSchedule, certificate: Certificate, width: int) -> list[str]:
    """Limits of the emitter with the structures that they apply to, choices that are not there, and what is idle."""
    outside = certificate.outside
    if outside is None:
        return wrapped(_UNKNOWN, width)
    sentences = [_limits(outside), *(absent(one, verified) for one in outside.absent)]
    sentences += [_idle(outside, verified), _padding(outside)]
    return [line for sentence in sentences if sentence for line in wrapped(sentence, width, hang="  ")]


def _limits(outside: Outside) -> str:
    """Limits, those of the most structures first."""
    if not outside.limits:
        return "Limits of the emitter: none applies."
    ordered = sorted(outside.limits, key=lambda one: -one[1])
    told = "; ".join(f"{name} ({count:,})" for name, count in ordered)
    return (
        f"Limits of the emitter that leave something out, with how many structures each is about: {told}. "
        "What lifting each would gain: docs/space.md."
    )


def absent(one: Absent, verified: VerifiedSchedule) -> str:
    """A sentence on a choice that no structure has, with its figures for this graph."""
    program, sms = verified.program, verified.machine.sm_count
    match one:
        case Absent.SPLIT:
            extent = program.whole.extent(Role.STREAM)
            return (
                f"No split of the contracted axis: one block takes all {extent:,} of its elements for a tile"
                f"{_room(program, sms)}."
            )
        case Absent.KERNELS:
            behind = len(program.after.items)
            parts = [counted(program.whole.products, "product")]
            parts += [f"{counted(behind, 'statement')} behind"] if behind else []
            return f"No cut of the graph: one kernel has {joined(parts)}."
        case Absent.CLUSTERS:
            copied = program.tiles * program.tile_l2_bytes
            times = copied / program.whole.compulsory_bytes
            return (
                f"No clusters of blocks: each SM copies its tiles itself, {copied:,} bytes through L2, "
                f"{times:,.1f} times those of the tensors."
            )
        case Absent.DYNAMIC:
            each = math.ceil(program.tiles / program.structure.places(sms))
            return (
                f"No tiles taken at run time: who has which of up to {each:,} tiles a block is known before."
            )
        case Absent.BLOCKS:
            return "One block an SM: several are for graphs of which one tile has all rows or all columns."
        case _:
            assert_never(one)


def _room(program: TileProgram, sms: int) -> str:
    """Whether a split would find SMs that have no tile at all."""
    if program.tiles >= sms:
        return ""
    return f", and {sms - program.tiles} of {sms} SMs have no tile at all"


def _idle(outside: Outside, verified: VerifiedSchedule) -> str:
    """SMs without a tile in the last wave, and the share of the SMs' time."""
    if not outside.idle_sms and outside.idle < 5e-4:
        return "Idle: no SM is without a tile while others have one."
    sms, waves = verified.machine.sm_count, verified.schedule.prediction.waves
    which = "the only wave" if waves == 1 else f"the last of {waves:,} waves"
    last = f"{outside.idle_sms} of {sms} SMs have no tile in {which}; " if outside.idle_sms else ""
    whose = "their blocks'" if verified.program.structure.blocks_an_sm > 1 else "the SMs'"
    return f"Idle: {last}{percent(outside.idle)} of {whose} time is without a tile while others have one."


def _padding(outside: Outside) -> str:
    """Axes that tiles reach over, and the share of the products' work."""
    if not outside.padded:
        return ""
    axes = ", ".join(f"{one.axis} {one.extent:,} as {one.computed:,}" for one in outside.padded)
    return f"Padded: {axes}; {percent(outside.padding)} of the products' work is beyond the tensors' ends."
