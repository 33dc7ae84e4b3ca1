"""Agreement of predictions with measurements: rank correlation, relative error, regret. Pure arithmetic."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import combinations


def kendall_tau(one: Sequence[float], other: Sequence[float]) -> float:
    """Kendall's tau-b of two series, ties counted as in Kendall, Biometrika 33 (1945); nan if one is constant.

    +1 if both order everything alike, -1 if they order everything the other way round.
    """
    concordant, untied_one, untied_other = 0, 0, 0
    for (a, b), (c, d) in combinations(zip(one, other, strict=True), 2):
        x, y = _sign(a - c), _sign(b - d)
        concordant += x * y
        untied_one += x != 0
        untied_other += y != 0
    pairs = math.sqrt(untied_one * untied_other)
    return concordant / pairs if pairs else math.nan


def tau_apart(predicted: Sequence[float], measured: Sequence[float], least: float) -> float:
    """Kendall's tau: pairs that are predicted in the measured order, less pairs in the other one, over all pairs.

    Of pairs whose measured times differ by more than the share `least` of the shorter; nan if there is none. Times
    that are nearer are equal to whoever chooses between them, and their order changes from run to run.
    """
    points = sorted(zip(measured, predicted, strict=True))
    signs = [_sign(y - x) for (short, x), (long, y) in combinations(points, 2) if long > short * (1 + least)]
    return statistics.fmean(signs) if signs else math.nan


def _sign(difference: float) -> int:
    return (difference > 0) - (difference < 0)


def relative_errors(predicted: Sequence[float], measured: Sequence[float]) -> tuple[float, ...]:
    """Predicted over measured, less one: positive where the model is too pessimistic."""
    return tuple(p / m - 1 for p, m in zip(predicted, measured, strict=True))


def mean_error(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """The mean of the relative errors' sizes."""
    return statistics.fmean(map(abs, relative_errors(predicted, measured)))


def regret(first: float, measured: Sequence[float]) -> float:
    """How much longer the first choice takes than the best that was measured, as a share."""
    return first / min(measured) - 1
