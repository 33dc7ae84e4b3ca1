"""Runs an emitted kernel on the CPU under adversarial interleavings and reports races and deadlocks."""

from wsopt.interpret.faults import BarrierError, DeadlockError, InterpreterError, RaceError
from wsopt.interpret.lines import Coverage, marked
from wsopt.interpret.mutate import Mutant, Place, deletions, mutants
from wsopt.interpret.run import Execution, execute

__all__ = [
    "BarrierError",
    "Coverage",
    "DeadlockError",
    "Execution",
    "InterpreterError",
    "Mutant",
    "Place",
    "RaceError",
    "deletions",
    "execute",
    "marked",
    "mutants",
]
