"""An integer linear program, independent of any solver: lists while it is built, and flat integer arrays.

Arithmetic on arrays is exact: 64-bit where the largest possible sum allows it, Python integers elsewhere.
Whoever builds a program knows the clock and the signals, models do not: they ask whether building is to end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt


class Interrupted(Exception):  # noqa: N818  # no error: the caller asked for it
    """Building has ended because the caller asked that it end."""


class TooLarge(Interrupted):
    """Building has ended because the program is larger than any that an engine solves in time."""


Question = Callable[[], bool]
"""Whether building is to end; asked several times a second."""


def never() -> bool:
    """Building runs to its end."""
    return False


def check(interrupted: Question) -> None:
    """Raises Interrupted if building is to end."""
    if interrupted():
        raise Interrupted


CHECK_EVERY = 256
"""Rows or variables between two questions whether building is to end: some ten milliseconds."""

MAX_VARIABLES = 1_000_000
"""Most variables of a program: 12,500 busy nodes need a quarter of that, and a few hundred megabytes.

Gangs that all differ need a variable for each kind of node, however few nodes there are.
"""

UNBOUNDED = 1 << 60
"""Row bound that never binds; below CP-SAT's int64 limits with room to add."""


@dataclass(slots=True)
class Linear:
    """A linear expression: sum of coefficient x variable, plus a constant."""

    terms: dict[int, int] = field(default_factory=dict)
    constant: int = 0

    def add(self, variable: int, coefficient: int = 1) -> Linear:
        if coefficient:
            self.terms[variable] = self.terms.get(variable, 0) + coefficient
        return self

    def add_all(self, variables: Iterable[int], coefficient: int = 1) -> Linear:
        if coefficient:
            terms = self.terms
            for variable in variables:
                terms[variable] = terms.get(variable, 0) + coefficient
        return self

    def add_linear(self, other: Linear, factor: int = 1) -> Linear:
        terms = self.terms
        for variable, coefficient in other.terms.items():
            terms[variable] = terms.get(variable, 0) + coefficient * factor
        self.constant += other.constant * factor
        return self

    @classmethod
    def total(cls, parts: Iterable[Linear]) -> Linear:
        """The sum of these, which stay as they are."""
        found = cls()
        for part in parts:
            found.add_linear(part)
        return found

    def value(self, values: Sequence[int]) -> int:
        """The value under an assignment of all variables."""
        return self.constant + sum(c * values[v] for v, c in self.terms.items())


@dataclass(slots=True)
class Row:
    """low <= sum of coefficients x variables <= high."""

    variables: list[int]
    coefficients: list[int]
    low: int
    high: int


class Program:
    """Variables (integers with bounds) and rows; grows only.

    While it is ``interrupted``, adding rows or variables raises Interrupted; so do more than
    MAX_VARIABLES.
    """

    def __init__(self, interrupted: Question = never) -> None:
        self.interrupted = interrupted
        self.lower: list[int] = []
        self.upper: list[int] = []
        self.rows: list[Row] = []
        self._exported = rows_of(())

    def integer(self, low: int, high: int) -> int:
        """A new integer variable; its index."""
        if not len(self.lower) % CHECK_EVERY:
            check(self.interrupted)
            if len(self.lower) >= MAX_VARIABLES:
                raise TooLarge
        self.lower.append(low)
        self.upper.append(high)
        return len(self.lower) - 1

    def boolean(self) -> int:
        return self.integer(0, 1)

    def fix(self, variable: int, value: int) -> None:
        self.lower[variable] = self.upper[variable] = value

    def at_most(self, expression: Linear, bound: int = 0) -> None:
        """expression <= bound."""
        self._row(expression, -UNBOUNDED, bound - expression.constant)

    def at_least(self, expression: Linear, bound: int = 0) -> None:
        """expression >= bound."""
        self._row(expression, bound - expression.constant, UNBOUNDED)

    def limit(self, expression: Linear, bound: int) -> None:
        """expression <= bound, where it could be more."""
        if self.bound_above(expression) > bound:
            self.at_most(expression, bound)

    def equal(self, expression: Linear, value: int = 0) -> None:
        """expression == value."""
        self._row(expression, value - expression.constant, value - expression.constant)

    def _row(self, expression: Linear, low: int, high: int) -> None:
        if not len(self.rows) % CHECK_EVERY:
            check(self.interrupted)
        terms = expression.terms
        if 0 in terms.values():
            terms = {v: c for v, c in terms.items() if c}
        self.rows.append(Row(list(terms), list(terms.values()), low, high))

    def row_arrays(self) -> Rows:
        """The rows as flat arrays; rows that were added since the last call are appended to them."""
        done = len(self._exported.low)
        if done < len(self.rows):
            self._exported = self._exported.followed_by(rows_of(self.rows[done:]))
        return self._exported

    def bound_above(self, expression: Linear) -> int:
        """The largest value the variables' bounds alone allow."""
        return expression.constant + sum(
            c * (self.upper[v] if c > 0 else self.lower[v]) for v, c in expression.terms.items()
        )

    def bound_below(self, expression: Linear) -> int:
        """The smallest value the variables' bounds alone allow."""
        return expression.constant + sum(
            c * (self.lower[v] if c > 0 else self.upper[v]) for v, c in expression.terms.items()
        )


def rows_of(rows: Sequence[Row]) -> Rows:
    """The rows as arrays, entries ordered by row and variable."""
    lengths = integers([len(row.variables) for row in rows])
    size = int(lengths.sum())
    columns = np.fromiter(chain.from_iterable(row.variables for row in rows), np.int64, size)
    coefficients = np.fromiter(
        chain.from_iterable(row.coefficients for row in rows), np.int64, size
    )
    numbers = np.repeat(np.arange(len(rows), dtype=np.int64), lengths)
    order = np.lexsort((columns, numbers))
    return Rows(
        integers([row.low for row in rows]),
        integers([row.high for row in rows]),
        numbers,
        columns[order],
        coefficients[order],
    )


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
        return Rows(
            np.concatenate((self.low, other.low)),
            np.concatenate((self.high, other.high)),
            np.concatenate((self.numbers, other.numbers + len(self.low))),
            np.concatenate((self.columns, other.columns)),
            np.concatenate((self.coefficients, other.coefficients)),
        )

    def hold(self, values: Integers) -> bool:
        totals = scattered_products(
            len(self.low), self.numbers, self.coefficients, values[self.columns]
        )
        return bool(((self.low <= totals) & (totals <= self.high)).all())


def integers(values: Collection[int]) -> Integers:
    return np.fromiter(values, np.int64, len(values))


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
