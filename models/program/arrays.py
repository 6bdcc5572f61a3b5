"""The bounds and rows of a program as flat integer arrays, for what must be fast at any size.

Arithmetic on them is exact: 64-bit where the largest possible sum allows it, Python integers elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Exact = npt.NDArray[np.int64] | npt.NDArray[np.object_]

LARGEST = float(1 << 62)
"""Sums whose terms' absolute values stay below this in floating point fit 64 bits."""


@dataclass(frozen=True, slots=True)
class Rows:
    """low <= matrix x <= high; entry k: row ``numbers[k]`` has ``coefficients[k]`` x ``columns[k]``."""

    low: Integers
    high: Integers
    numbers: Integers
    columns: Integers
    coefficients: Integers

    def followed_by(self, other: Rows) -> Rows:
        """These rows, then the others."""
        return Rows(
            np.concatenate((self.low, other.low)),
            np.concatenate((self.high, other.high)),
            np.concatenate((self.numbers, other.numbers + len(self.low))),
            np.concatenate((self.columns, other.columns)),
            np.concatenate((self.coefficients, other.coefficients)),
        )

    def hold(self, values: Integers) -> bool:
        """Whether an assignment satisfies every row."""
        totals = row_sums(self, values)
        return bool(((self.low <= totals) & (totals <= self.high)).all())


def integers(values: Collection[int]) -> Integers:
    return np.fromiter(values, np.int64, len(values))


def row_sums(rows: Rows, values: Integers) -> Exact:
    """The sum of every row under an assignment."""
    return scattered_products(len(rows.low), rows.numbers, rows.coefficients, values[rows.columns])


def scattered_products(size: int, targets: Integers, left: Exact, right: Exact) -> Exact:
    """For each target in 0..size-1, the sum of left x right over the entries with that target."""
    products = np.abs(left.astype(np.float64) * right.astype(np.float64))
    if float(products.sum()) < LARGEST:
        totals: Exact = np.zeros(size, dtype=np.int64)
    else:
        totals = np.array([0] * size, dtype=np.object_)
        left, right = left.astype(np.object_), right.astype(np.object_)
    np.add.at(totals, targets, left * right)
    return totals


def dot(left: Exact, right: Exact) -> int:
    """The sum of left x right."""
    return int(scattered_products(1, np.zeros(len(left), dtype=np.int64), left, right)[0])
