"""Runs CP-SAT with fixed parameters, so that the same model gives the same answer."""

from __future__ import annotations

from ortools.sat.python import cp_model


def deterministic(limit: float) -> cp_model.CpSolver:
    """One worker, a fixed seed, and a limit that counts work instead of seconds."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = max(0.0, limit)
    return solver


def work(solver: cp_model.CpSolver) -> float:
    """The deterministic time that a solve took."""
    return float(solver.response_proto.deterministic_time)
