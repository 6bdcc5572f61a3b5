"""An integer linear program as plain arrays, independent of any solver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from models.program.arrays import Rows, integers
from models.program.interruption import Question, TooLarge, check, never

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
        self._exported: Rows | None = None

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
        known = self._exported
        done = 0 if known is None else len(known.low)
        if known is None or done < len(self.rows):
            added = rows_of(self.rows[done:])
            known = added if known is None else known.followed_by(added)
            self._exported = known
        return known

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
