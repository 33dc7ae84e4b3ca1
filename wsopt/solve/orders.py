"""The order of a schedule's operations, and the constraint that asks for another one.

A partition's thread meets its operations in an order, each of some iteration before or after the others':
that, and who does what, is what is emitted. Starts alone are not: a schedule whose operations are moved without
passing each other is the same program.
"""

from __future__ import annotations

from itertools import combinations

from wsopt.schedule import budget
from wsopt.schedule.types import Schedule
from wsopt.solve.variables import Model


def ask_for_another(m: Model, schedule: Schedule) -> None:
    """Rule out this schedule's order, and nothing else.

    With d = floor((start(b) - start(a)) / II) for every two operations of a partition, the d's say the order in full:
    some start(b) - start(a) is below d * II or not below (d + 1) * II. Or another loading warp fills a ring.
    """
    ids = {str(one): one for one in m.start}
    if any(p.partition not in budget.issuers(m.program, m.program.op(ids[p.op])) for p in schedule.placed):
        return  # who does what is other here
    different = []
    for partition in schedule.partitions:
        own = [placed for placed in schedule.placed if placed.partition == partition.name]
        for a, b in combinations(own, 2):
            d = ((b.stage - a.stage) * schedule.ii + b.cycle - a.cycle) // schedule.ii
            apart, name = m.start[ids[b.op]] - m.start[ids[a.op]], f"another[{a.op},{b.op}]"
            earlier, later = m.cp.new_bool_var(f"{name}<{d}"), m.cp.new_bool_var(f"{name}>{d}")
            m.cp.add(apart <= d * m.ii - 1).only_enforce_if(earlier)
            m.cp.add(apart >= (d + 1) * m.ii).only_enforce_if(later)
            different += [earlier, later]
    different += [~on for (load, name), on in m.on.items() if schedule.place(load).partition == name]
    m.cp.add_bool_or(different)
