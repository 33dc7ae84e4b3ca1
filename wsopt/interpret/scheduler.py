"""Runs the partitions of one program and the asynchronous work they issued, in the order a seed chooses."""

from __future__ import annotations

import os

import greenlet

from wsopt.interpret.agent import Agent, AsyncWork, all_finished
from wsopt.interpret.faults import SOURCE_ERRORS, DeadlockError, InterpreterError, KernelFault
from wsopt.interpret.strategy import Chooser

STEP_LIMIT = 5_000_000


class Scheduler:
    """Owns the agents and the pending asynchronous work of one program."""

    def __init__(self, chooser: Chooser, filename: str, steps_left: int = STEP_LIMIT) -> None:
        self.agents: list[Agent] = []
        self.pending: list[AsyncWork] = []
        self.steps = 0
        self.current: Agent | None = None
        self._chooser = chooser
        self._filename = filename
        self._steps_left = steps_left
        self._hub = greenlet.getcurrent()

    def run(self) -> None:
        """Run until every agent has finished; KernelFault with its place if one cannot."""
        try:
            while not all_finished(self.agents):
                self._step()
        finally:
            for agent in self.agents:
                agent.stop()

    def perform(self, work: AsyncWork) -> None:
        """Let one piece of asynchronous work happen, and give its faults the place of its issue."""
        self.pending.remove(work)
        try:
            work.perform()
        except KernelFault as fault:
            where = f"{self.place(work.agent, work.line)}, asynchronously"
            raise fault.located(where) from None

    def place(self, agent: Agent, line: int) -> str:
        """Return `kernel.py:LINE: PARTITION, pass N` for messages."""
        passes = agent.passes.get(line)
        suffix = f", pass {passes} of this line" if passes else ""
        return f"{os.path.basename(self._filename)}:{line}: {agent.name}{suffix}"

    def _step(self) -> None:
        self.steps += 1
        if self.steps > self._steps_left:
            raise self._deadlock("livelock: the kernel does not end in the steps allowed")
        runnable = [
            agent.index
            for agent in self.agents
            if not agent.finished and ((waiting := agent.waiting) is None or waiting.ready())
        ]
        work = self._next_work(bool(runnable))
        if work is not None:
            self.perform(work)
        elif runnable:
            self._resume(self.agents[self._chooser.agent(runnable)])
        else:
            raise self._deadlock("no partition can go on")

    def _next_work(self, someone_can_run: bool) -> AsyncWork | None:
        if not self.pending:
            return None
        if someone_can_run and not self._chooser.completes_now(len(self.pending)):
            return None
        possible = [w for w in self.pending if (someone_can_run or w.wakes) and w.possible()]
        return self._chooser.work(possible) if possible else None

    def _resume(self, agent: Agent) -> None:
        self.current = agent
        try:
            agent.coroutine.switch()
        except KernelFault as fault:
            raise fault.located(self.place(agent, kernel_line(fault, self._filename))) from None
        except SOURCE_ERRORS as error:
            line = kernel_line(error, self._filename)
            text = f"{self.place(agent, line)}: {type(error).__name__}: {error}"
            raise InterpreterError(text) from error
        finally:
            self.current = None

    def _deadlock(self, what: str) -> KernelFault:
        standing = [f"  {self._stands(agent)}" for agent in self.agents if not agent.finished]
        return DeadlockError("\n".join([what, *standing])).located(os.path.basename(self._filename))

    def _stands(self, agent: Agent) -> str:
        if agent.waiting is None:
            return f"{self.place(agent, agent.line)}: running"
        return f"{self.place(agent, agent.waiting.line)}: {agent.waiting.describe()}"


def kernel_line(error: BaseException, filename: str) -> int:
    """Return the innermost line of the kernel in an error's traceback; 0 if there is none."""
    line = 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
