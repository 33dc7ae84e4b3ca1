"""One program of the grid: its partitions, its shared memory, its barriers, and the check at its end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from wsopt.interpret.agent import Agent, Waiting, all_finished
from wsopt.interpret.barrier import Barrier
from wsopt.interpret.clock import Clock, Components, joined
from wsopt.interpret.faults import InterpreterError, RaceError
from wsopt.interpret.hazards import History
from wsopt.interpret.scheduler import Scheduler


@dataclass(eq=False)
class Program:
    """The state of one program while it runs.

    `number` counts the programs of the grid; `constants` are tensors whose contents are fixed before the kernel
    launched before ends; `ending` are the lines whose waits ended a product or a store. Of the `blocks` of a cluster
    each runs every partition. `nanoseconds` are what its timer shows.
    """

    program_id: tuple[int, ...]
    num_programs: tuple[int, ...]
    num_warps: int
    launch: int
    scheduler: Scheduler
    filename: str
    number: int = 0
    components: Components = field(default_factory=Components)
    histories: list[History] = field(default_factory=list)
    barriers: list[Barrier] = field(default_factory=list)
    ending: set[int] = field(default_factory=set)
    tensor_columns: int = 0
    specialized: bool = False
    dependent: bool = False
    constants: frozenset[str] = frozenset()
    precision: str = ""
    blocks: int = 1
    nanoseconds: int = 0
    previous: int | None = field(init=False)

    def __post_init__(self) -> None:
        # The end of the kernel launched before is an event like others: known to those who waited for it.
        self.previous = self.components.new() if self.dependent else None

    def check_dependency(self, agent: Agent, tensor: str) -> None:
        """RaceError for a use of global memory, but of constants, while the kernel launched before may still run."""
        if tensor in self.constants:
            return
        if self.previous is not None and not agent.clock.knows(self.previous, 1):
            raise RaceError(f"{tensor} is used before gdc_wait: the kernel launched before may still run")

    def run(self, body: Callable[[], Any]) -> None:
        """Run the kernel to its end as this program; KernelFault for whatever goes wrong."""
        agent = Agent(0, "kernel", 0, self.components.new(), Clock())
        agent.num_warps = self.num_warps
        agent.start(body)
        self.scheduler.agents.append(agent)
        self.scheduler.run()
        self._check_end()

    @property
    def agent(self) -> Agent:
        """The partition that runs now."""
        if self.scheduler.current is None:
            raise InterpreterError("a device operation is used outside a kernel")
        return self.scheduler.current

    def operation(self) -> Agent:
        """Start a synchronizing or asynchronous operation: others may run first. Return who does it."""
        agent = self.scheduler.current or self.agent
        agent.line = line = self.line()
        agent.passes[line] = agent.passes.get(line, 0) + 1
        agent.pause()
        agent.tick()
        return agent

    def line(self) -> int:
        """Return the line of the kernel's source that is running."""
        frame, filename = sys._getframe(1), self.filename
        while frame.f_code.co_filename != filename and (outer := frame.f_back) is not None:
            frame = outer
        return frame.f_lineno

    def specialize(self, parts: Sequence[tuple[Any, Sequence[Any]]], worker_warps: Sequence[int]) -> Any:
        """Run the partitions of `gl.warp_specialize`, the first with the kernel's own warps."""
        if self.specialized and self.agent.index != 0:
            raise InterpreterError("warp_specialize inside a partition is not supported")
        self.specialized = True
        parent = self.agent
        warps = (parent.num_warps, *worker_warps)
        names = _partition_names([function.__name__ for function, _ in parts])
        made = list(zip(names, warps, parts, strict=True))
        agents = [
            self._fork(parent, name, count, block) for block in range(self.blocks) for name, count, _ in made
        ]
        for agent, (_, _, (function, arguments)) in zip(agents, made * self.blocks, strict=True):
            agent.start(partial(function, *arguments))
            # The partitions hang under the scheduler, not under the kernel that makes them.
            agent.coroutine.parent = parent.coroutine.parent
        ended = Waiting(lambda: all_finished(agents), lambda: "joins its partitions", self.line())
        parent.wait_until(ended)
        parent.clock.join(joined(agent.clock for agent in agents))
        parent.joined = parent.time
        return agents[0].result

    def _fork(self, parent: Agent, name: str, warps: int, block: int) -> Agent:
        clock, name = parent.clock.copy(), f"{name} of block {block}" if self.blocks > 1 else name
        agent = Agent(len(self.scheduler.agents), name, warps, self.components.new(), clock, block=block)
        self.scheduler.agents.append(agent)
        agent.tick()
        return agent

    def _check_end(self) -> None:
        """Nothing asynchronous may be left that nobody has waited for: its shared memory goes away."""
        known = joined(agent.clock for agent in self.scheduler.agents)
        for agent in self.scheduler.agents:
            for work in (*agent.stores, *agent.mmas):
                place = self.scheduler.place(agent, work.line)
                raise RaceError(f"{work.what} is not waited for at the end of the kernel").located(place)
            core = agent.tensor_core
            if core is not None and not known.knows(core.component, core.time):
                place = self.scheduler.place(agent, core.line)
                raise RaceError("no commit of this product is waited for before the kernel ends").located(
                    place
                )
        for write in (write for history in self.histories for write in history.writes if write.copy):
            assert isinstance(write.agent, Agent)
            if write.in_flight or not known.knows(write.component, write.time):
                place = self.scheduler.place(write.agent, write.line)
                raise RaceError(f"copy in flight at kernel end: nobody waits for {write}").located(place)


def _partition_names(functions: Sequence[str]) -> list[str]:
    """Number the partitions that run the same function: consumer 0, consumer 1, loader."""
    names = []
    for index, name in enumerate(functions):
        number = functions[:index].count(name)
        names.append(f"{name} {number}" if functions.count(name) > 1 else name)
    return names
