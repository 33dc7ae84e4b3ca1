"""Records of the emitter's limits: what each forbids, why, and how a model does without it.

A model can be solved without one (`solve/without.py`); what comes out shows what lifting it would gain, and is never
emitted. `docs/space.md` has the figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wsopt.program.limits import Limit


class How(StrEnum):
    """How a model does without a limit. All but the last give schedules of the relaxed model with their times.

    A CEILING frees more than any emitter could: what it gains is the most that lifting the limit can. So does what a
    kernel's BYTES take, where the model cannot express what the limit forbids.
    """

    LEFT_OUT = "constraint left out"
    CHOICES = "choices added"
    RAISED = "bound raised"
    CEILING = "more is freed than the limit forbids"
    BYTES = "time of the bytes alone"

    @property
    def at_most(self) -> bool:
        """Whether a gain is only known to be no more than the figure."""
        return self in (How.CEILING, How.BYTES)


@dataclass(frozen=True, slots=True)
class Record:
    """A limit: what it `forbids`, `why`, and how to solve without it. `places` are the functions and constants that
    state it, `file:name` below the package.
    """

    limit: Limit
    forbids: str
    why: str
    how: How
    without: str
    places: tuple[str, ...]


RECORDS = (
    Record(
        Limit.SLOTS_IN_ORDER,
        "The loading warp may not issue copies of one slot in different stages, nor a copy of a slot before all "
        "copies of the slot before it.",
        "The loading warp is one loop over slots: it waits for a slot once, expects all bytes of the slot at one "
        "barrier, and then issues every copy of it.",
        How.LEFT_OUT,
        "The constraint is left out: each copy has a stage and a place of its own.",
        ("solve/model.py:slot_in_step", "checker.py:_slots_in_order"),
    ),
    Record(
        Limit.STAGES,
        "A consumer may not have more stages than a tile has passes, one of them for a short last K-block.",
        "The first and last passes of a loop are peeled off, one for each stage.",
        How.LEFT_OUT,
        "The constraint is left out: stages may reach over a tile's end.",
        ("solve/model.py:few_overlaps", "checker.py:_overlaps"),
    ),
    Record(
        Limit.TWO_ITERATIONS,
        "Where arithmetic waits for products, or feeds them, a consumer may not have operations of more than two "
        "iterations in one pass.",
        "A value is then made again at most once before its last reader, so that one older name of it is enough.",
        How.RAISED,
        "Up to four iterations in one pass, and tiles that live in registers through up to four.",
        ("solve/model.py:few_overlaps", "checker.py:_overlaps"),
    ),
    Record(
        Limit.ONE_PROGRAM,
        "Where consumers compute in the loop, they may not do things in different orders or at different distances.",
        "One device function is written for all consumers, and the model has the live registers of one.",
        How.LEFT_OUT,
        "The constraint is left out: each consumer's operations are placed by themselves, and each has its live "
        "registers counted.",
        ("solve/model.py:one_program", "checker.py:_one_program"),
    ),
    Record(
        Limit.ROWS_IN_A_PASS,
        "Where rows stream, a consumer may not begin a tile before it has ended the one before.",
        "The tile's values are variables of one pass of the loop.",
        How.LEFT_OUT,
        "The constraint is left out for loops over tiles: a consumer may be in two tiles at once.",
        ("solve/model.py:within_a_pass", "checker.py:_overlaps"),
    ),
    Record(
        Limit.SUMS_IN_A_PASS,
        "Partial sums may not be carried from one pass into the next.",
        "They would be read while a later product is under way, and ptxas then runs the products one by one (its "
        "warning C7514).",
        How.LEFT_OUT,
        "The constraint is left out, and with it the bound of the interval that follows from it.",
        ("solve/model.py:within_a_pass", "checker.py:_overlaps"),
    ),
    Record(
        Limit.VALUES_IN_A_PASS,
        "Where values of a loop go through tensor memory, a consumer may not begin a K-block before it has ended the "
        "one before.",
        "Its pass reads a K-block's scores once, and the sums of the one before when it rescales them: one barrier "
        "each tells of them.",
        How.LEFT_OUT,
        "The constraint is left out: consumers may be in several K-blocks at once.",
        ("solve/model.py:within_a_pass", "checker.py:_overlaps"),
    ),
    Record(
        Limit.TRANSFORM_IN_A_PASS,
        "A transform warpgroup may not begin a K-block before it has ended the one before.",
        "Its loop is written with one K-block a pass, and nothing is peeled off.",
        How.LEFT_OUT,
        "The constraint is left out for transform warpgroups.",
        ("solve/model.py:within_a_pass", "checker.py:_overlaps"),
    ),
    Record(
        Limit.BASE_REGISTERS,
        "A block may not have so many warps that the registers it is launched with hold no tensor instruction's "
        "sums.",
        "ptxas starts from the registers that a kernel is launched with, before roles trade them, and refuses an "
        "instruction that needs more.",
        How.RAISED,
        "The bound is left out: what consumers have after the trade is all that counts.",
        ("solve/bound.py:infeasible",),
    ),
    Record(
        Limit.MOST_SLOTS,
        "A ring may not have more than 32 slots.",
        "Each slot has two barriers that a block sets up one by one before its first copy.",
        How.RAISED,
        "Up to 128 slots, as shared memory allows.",
        ("program/limits.py:MOST_SLOTS", "solve/conditions.py:_too_deep", "checker.py:_rings"),
    ),
    Record(
        Limit.HELPERS,
        "A block may not have more than four warps that start copies, products or stores: no second loading warp "
        "beside three store warps, and no store warps for four consumers.",
        "They share one warpgroup, so that a launch has no more warps, and consumers no fewer registers, for them.",
        How.RAISED,
        "Store warps for any number of consumers, beside any number of loading warps.",
        ("schedule/budget.py:MOST_HELPERS", "checker.py:_loaders"),
    ),
    Record(
        Limit.STORES_OF_PARTIALS,
        "Where partial sums are added up, consumers start their stores themselves.",
        "Waits for the others' stores keep such consumers out of step, so that one computes while another's products "
        "run. The model does not know that: with store warps an f8 product was measured to take 3 % more cycles "
        "(`docs/calibration/h200_stores.json`).",
        How.CHOICES,
        "Store warps are a choice there too.",
        ("schedule/budget.py:buffer_options",),
    ),
    Record(
        Limit.STORES_OF_VALUES,
        "In loops that compute values, consumers start their stores themselves.",
        "The consumer that goes on to its next tile by itself has no barriers with a store warp yet.",
        How.CHOICES,
        "Store warps are a choice there too, at their price in loops of products.",
        ("schedule/budget.py:buffer_options",),
    ),
    Record(
        Limit.STORES_OF_SPLITS,
        "Where the sums of a tile are split over blocks, consumers start the stores and the copies of its epilogue "
        "themselves.",
        "Only the block whose part comes last has an epilogue, and only its consumers know that.",
        How.CHOICES,
        "Store warps, and inputs brought by the loading warp, are a choice there too.",
        ("schedule/budget.py:buffer_options",),
    ),
    Record(
        Limit.SPLIT_SUMS,
        "Sums are not split over blocks where a loop reduces rows beside its products, where blocks have one tile, "
        "or where a loop that computes values rescales its sums by more than maxima and numbers, or has an epilogue "
        "that reads full tiles. Blocks take equal shares of all K-blocks where consumers are cooperative.",
        "A part leaves sums and maxima in the workspace, and factors are computed from those alone. Consumers in "
        "turns pass over the K-blocks of others, which they find by the numbers of tiles or of parts.",
        How.CHOICES,
        "The model has no price for it; there is no figure.",
        ("lowering/parted.py:parts_come_together", "lowering/parted.py:may_share"),
    ),
    Record(
        Limit.PAIRS,
        "Two blocks do not work on one tile where a loop computes values or reduces rows beside its products, where "
        "blocks have one tile, where operands change sides, sums are split or run-time offsets cut the rows, or "
        "where threads store outputs by address.",
        "Of what lies in registers each block of a pair has its rows, and what the roles of such loops hand to each "
        "other is not divided so yet.",
        How.CHOICES,
        "The model has no price for it; there is no figure.",
        ("lowering/product_structures.py:_paired",),
    ),
    Record(
        Limit.STORES_OF_ROWS,
        "Where rows stream, consumers start their stores themselves.",
        "A store is an operation of the loop there, and the model has no price for the part that another warp could "
        "do.",
        How.CEILING,
        "Stores take no consumer's time, of which a store warp could take a part.",
        ("schedule/budget.py:buffer_options",),
    ),
    Record(
        Limit.LOADERS,
        "Copies into one ring may not be issued by more than one warp, nor those of a loop by more than two. An "
        "epilogue's input tiles may not be brought by a loading warp beside a second one, where loops compute "
        "values, or into fewer buffers than there are subtiles.",
        "All copies of a slot arrive at one barrier, whose bytes one warp announces; a loading warp is one loop that "
        "goes from K-block to K-block through its rings.",
        How.CEILING,
        "Issuing a copy takes no warp's time: no number of loading warps is faster. Who brings an epilogue's inputs "
        "has no figure.",
        (
            "schedule/budget.py:issuers",
            "schedule/budget.py:_MOST_LOADERS",
            "schedule/budget.py:buffer_options",
            "solve/conditions.py:unmet",
            "solve/model.py:rings_in_step",
            "checker.py:_placement",
            "checker.py:_loaders",
            "checker.py:_partitions",
        ),
    ),
    Record(
        Limit.OWN_OPERATIONS,
        "A consumer's products and arithmetic may not be issued by another role: there is none for softmax alone, "
        "nor, where sums are in registers, for rescaling.",
        "Tiles in registers are handed from one role to another by transform warpgroups alone.",
        How.CEILING,
        "The model cannot express it: it has no channels between other roles. Issuing takes no consumer's time, and "
        "tiles of a K-block none of its registers; units, latencies, rings and sums stay. No assignment of roles is "
        "faster.",
        ("schedule/budget.py:issuers", "checker.py:_placement", "checker.py:_partitions"),
    ),
    Record(
        Limit.COOPERATIVE_VALUES,
        "In loops that compute values, consumers may not take whole tiles in turns.",
        "Turns are written for loops of products alone.",
        How.CHOICES,
        "Persistent blocks in ping-pong are structures there too: one consumer is in the loop at a time, and "
        "another's epilogue and start run under it.",
        ("lowering/structures.py:_k_block_structures",),
    ),
    Record(
        Limit.ONE_TILE_A_BLOCK,
        "Where values of a loop go through tensor memory, blocks may not be persistent.",
        "Four roles would read which tiles a block takes. What their reads have in common ptxas 13.4 keeps from the "
        "kernel's first line on, and spills it (Triton 3.9, `--regAllocOptLevel=2`).",
        How.CHOICES,
        "Persistent blocks are structures there too: the next tile's first products run under an epilogue.",
        ("lowering/structures.py:_k_block_structures",),
    ),
    Record(
        Limit.OPERANDS_IN_SHARED,
        "Where values of a loop go through tensor memory, a product may not take one from shared memory.",
        "No consumer stages an operand there: it would take 32 KiB of a tile, and a fence before the product.",
        How.BYTES,
        "The model cannot express it. No kernel is faster than its bytes: the gain is at most what the prediction "
        "has above them.",
        ("lowering/structures.py:_operands",),
    ),
    Record(
        Limit.ONE_WARPGROUP,
        "Where values of a loop go through tensor memory, a tile's scores may not be two warpgroups'.",
        "A row is one thread's, so that its maximum and its sum take no exchange between threads.",
        How.BYTES,
        "The model cannot express it; the gain is at most what the prediction has above its bytes.",
        ("lowering/legal.py:is_legal", "targets/targets.py:BLACKWELL"),
    ),
    Record(
        Limit.EVERY_RESCALE,
        "Sums in tensor memory may not be left as they are where a maximum has grown by little if that maximum, or "
        "what a sum is relative to it, is read behind the loop, as for a log-sum-exp.",
        "What is read there has to be the same whatever a row has kept; that is seen of quotients of sums alone.",
        How.BYTES,
        "The model cannot express it; the gain is at most what the prediction has above its bytes.",
        ("lowering/phases.py:lazy_rows",),
    ),
    Record(
        Limit.STREAMED_TRANSFORM,
        "A transform warpgroup may not compute operands from tensors that do not stream, such as scales of rows.",
        "It finds its inputs in the slots of rings, and has no loads by address.",
        How.CHOICES,
        "Transform warpgroups are a choice there too. Their loads of what does not stream have no price, so the gain "
        "is at most the figure.",
        ("lowering/product_structures.py:_transforms",),
    ),
    Record(
        Limit.ROWS_OF_TILES,
        "Where copies bring rows, blocks are persistent, consumers have a part of each tile's rows, and the loop is "
        "over tiles. Where an SM has several blocks of one tile each, a block has one consumer, whose threads read "
        "and store: not rows that indices choose, nor reductions over rows. Tiles of vectors alone are such blocks'. "
        "A block that carries reductions over rows takes tiles of the same columns.",
        "Blocks of one tile with copies, and consumers with columns of their own, are not written; nor is what a "
        "block carries changed from tile to tile.",
        How.BYTES,
        "The model cannot express it. No kernel of rows is faster than its first copy, its bytes and its last store: "
        "the gain is at most what the prediction has above them.",
        (
            "lowering/row_structures.py:row_structures",
            "lowering/row_structures.py:_over_rows",
            "lowering/resident.py:may_be_resident",
        ),
    ),
    Record(
        Limit.ALL_PROMOTED,
        "Two K-blocks an iteration may not be taken where some of the loop's products are promoted and others are "
        "not.",
        "A plain product's sums would be begun by one K-block and added to by the other, and nothing keeps their "
        "order.",
        How.CHOICES,
        "Two K-blocks an iteration are a choice there too.",
        ("lowering/product_structures.py:_copies",),
    ),
    Record(
        Limit.EQUAL_SUBTILES,
        "Epilogue subtiles may not differ in width, and one of columns in parts may not lie in two of them.",
        "A kernel has one staging buffer of a kind, and one box of it, for all subtiles.",
        How.CHOICES,
        "The model has one price for all subtiles of a tile; there is no figure.",
        ("lowering/legal.py:subtile_counts",),
    ),
    Record(
        Limit.ONE_FACTOR,
        "Where scales of blocks multiply partial sums, a tile has no more columns than a block, and a block has "
        "whole tiles of columns.",
        "A consumer then has one factor a row for all of its columns, which is one multiplication and addition an "
        "element.",
        How.CHOICES,
        "Wider tiles are a choice there too. Their further factors have no price, so the gain is at most the figure.",
        ("lowering/product_structures.py:_has_factors",),
    ),
    Record(
        Limit.SEGMENTS,
        "Where run-time offsets cut the rows, blocks may not have one tile each, nor parts of tiles.",
        "How many tiles there are is known when the kernel runs. A block goes on from one tile to the next, and from "
        "segment to segment with it.",
        How.CHOICES,
        "Blocks of one tile, split sums and equal shares are structures there too.",
        ("lowering/product_structures.py:_in_segments",),
    ),
    Record(
        Limit.SCALED_TRANSFORM,
        "Scales of groups may not multiply partial sums where a transform warpgroup takes the weights apart.",
        "A consumer reads the scales from the slot of the weights, which the transform warpgroup hands back.",
        How.BYTES,
        "The model cannot express it; the gain is at most what the prediction has above its bytes.",
        ("lowering/structures.py:_with_scaled_sums",),
    ),
    Record(
        Limit.WHOLE_TRANSFORM,
        "Operands that a loop of computed values widens may not be dealt out among fewer transform warpgroups than "
        "there are operands, nor one of them among several, nor may consumers widen their own.",
        "A transform warpgroup is one loop that fills the rings which it has, and a ring is filled by one.",
        How.BYTES,
        "The model cannot express it; the gain is at most what the prediction has above its bytes.",
        ("lowering/structures.py:_transforms",),
    ),
)
"""Every limit, in the order in which the documentation has them."""

RECORD = {record.limit: record for record in RECORDS}
"""The record of each limit."""
