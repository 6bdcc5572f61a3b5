"""Whether a regular expression can take a backtracking matcher more than linear time.

Read from the expression itself, without a clock: its automaton has one state for each character class,
and the expression is slow where one text leads through the automaton in many ways. *Exponential*: a loop
that some word passes in two ways. *Quadratic*: two loops, where some word passes the first, the second,
and the way between them; a search that begins anywhere counts as a first loop. (Weideman et al., Analyzing
matching time behavior of backtracking regular expression matchers, 2016.)
"""

# ruff: noqa: ANN401  # the trees of re have no types

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Literal, TypeVar

Mode = Literal["fullmatch", "match", "search"]
"""How an expression is used. ``search`` begins anywhere: also ``sub``, ``split`` and ``findall``."""

LONG = {"exponential": 3, "quadratic": 256}
"""Most repetitions that do not count as a loop: two ways in each of four are many, a name of 253 is short."""

_SAMPLE = "\0\t\n\v\f\r\x1c !#,-.019:AZ_az{\x85\xa0\u0149\u0663\u2028\U0001f600"
_CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}
_LINE, _BEGIN, _TEST = "line", "begin", "test"


def faults(pattern: str | bytes, flags: int, mode: Mode) -> list[str]:
    """What is wrong with an expression: ``exponential``, ``quadratic``, or nothing."""
    parsed = parser.parse(pattern, flags)
    return _faults(parsed, parsed.state.flags, mode)


def _faults(parsed: Any, flags: int, mode: Mode) -> list[str]:
    found = []
    for kind, long in LONG.items():
        automaton = _Automaton(flags, long)
        automaton.build(parsed, mode)
        if automaton.exponential() if kind == "exponential" else automaton.quadratic(mode):
            found.append(kind)
    for body, used in automaton.bodies:
        found += [f"{one} in a lookahead" for one in _faults(body, flags, used)]
    return found


@dataclass
class _Automaton:
    """``labels``: the sample characters of each state; ``follow``: how many ways lead to the next."""

    flags: int
    long: int
    edges: list[list[tuple[int, str | None]]] = field(default_factory=list)
    reads: dict[int, tuple[frozenset[str], int]] = field(default_factory=dict)
    bodies: list[tuple[Any, Mode]] = field(default_factory=list)
    letters: frozenset[str] = frozenset()
    follow: dict[int, dict[int, int]] = field(default_factory=dict)
    accepts: set[int] = field(default_factory=set)

    def build(self, parsed: Any, mode: Mode) -> None:
        self.letters = frozenset(_SAMPLE) | {*_characters(parsed)}
        start = self._node()
        if mode == "search":
            rest, line = self._node(), self._node()
            self.reads[rest] = (self.letters - {"\n"}, start)
            self.reads[line] = (self.letters & {"\n"}, start)
            self.edges[start] += [(rest, None), (line, None)]
        end = self._sequence(parsed, self._after(start), mode, looped=mode == "search")
        for state in self.reads:
            self.follow[state] = self._next(state, end)

    def exponential(self) -> bool:
        """Whether some word leads from a state back to it in two ways."""
        for loop in self._loops():
            if any(self.follow[a].get(b, 0) > 1 for a in loop for b in loop):
                return True
            pairs = {
                (a, b): [
                    (x, y)
                    for x in self.follow[a]
                    for y in self.follow[b]
                    if x in loop and y in loop and self._both(x, y)
                ]
                for a in loop
                for b in loop
            }
            back: dict[tuple[int, int], list[tuple[int, int]]] = {pair: [] for pair in pairs}
            for pair, others in pairs.items():
                for other in others:
                    back[other].append(pair)
            for p in loop:
                if any(a != b for a, b in _reached(pairs, (p, p)) & _reached(back, (p, p))):
                    return True
        return False

    def quadratic(self, mode: Mode) -> bool:
        """Whether some word leads from p to p, from p to q and from q to q, and may fail after q."""
        loops = self._loops()
        for first in loops:
            for second in loops:
                for q in second - self._sure(mode):
                    if any(p != q and self._passes(p, q, first, second) for p in first):
                        return True
        return False

    def _passes(self, p: int, q: int, first: frozenset[int], second: frozenset[int]) -> bool:
        todo, seen = [(p, p, q)], {(p, p, q)}
        while todo:
            x, y, z = todo.pop()
            for a in self.follow[x]:
                for c in self.follow[z]:
                    if a not in first or c not in second or not self._both(a, c):
                        continue
                    for b in self.follow[y]:
                        if not self._label(a) & self._label(b) & self._label(c):
                            continue
                        if (a, b, c) == (p, q, q):
                            return True
                        if (a, b, c) not in seen:
                            seen.add((a, b, c))
                            todo.append((a, b, c))
        return False

    def _sure(self, mode: Mode) -> set[int]:
        """States after which the match cannot fail."""
        ends = {state for state in self.reads if state in self.accepts}
        if mode == "fullmatch":
            return {q for q in ends if self._label(q) == self.letters and q in self.follow[q]}
        return ends

    def _loops(self) -> list[frozenset[int]]:
        reached = {a: _reached(self.follow, a) for a in self.follow}
        loops = {
            frozenset(b for b in reached[a] if a in reached[b]) for a in reached if a in reached[a]
        }
        return sorted(loops, key=sorted)

    def _label(self, state: int) -> frozenset[str]:
        return self.reads[state][0]

    def _both(self, a: int, b: int) -> bool:
        return bool(self._label(a) & self._label(b))

    def _node(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1

    def _after(self, node: int, condition: str | None = None) -> int:
        new = self._node()
        self.edges[node].append((new, condition))
        return new

    def _next(self, state: int, end: int) -> dict[int, int]:
        """States that may read the next character, each with the number of ways there (at most 2)."""
        label, at = self.reads[state]
        found: dict[int, int] = {}
        todo: list[tuple[int, frozenset[tuple[int, int]], bool]] = [(at, frozenset(), False)]
        steps = 0
        while todo:
            node, used, tested = todo.pop()
            steps += 1
            assert steps < 200_000, "too many ways without a character: make the expression simpler"
            if node == end and not tested:
                self.accepts.add(state)
            if node in self.reads:
                found[node] = min(2, found.get(node, 0) + 1)
                continue
            for to, condition in self.edges[node]:
                if (node, to) in used or condition == _BEGIN:
                    continue
                if condition == _LINE and "\n" not in label:
                    continue
                todo.append((to, used | {(node, to)}, tested or condition == _TEST))
        return found

    def _sequence(self, items: Any, at: int, mode: Mode, *, looped: bool) -> int:
        for operation, value in items:
            at = self._item(operation, value, at, mode, looped=looped)
        return at

    def _item(self, operation: Any, value: Any, at: int, mode: Mode, *, looped: bool) -> int:
        if operation in {sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY}:
            node, after = self._after(at), self._node()
            self.reads[node] = (self._matched(operation, value), after)
            return after
        if operation is sre.SUBPATTERN:
            return self._sequence(value[3], at, mode, looped=looped)
        if operation is sre.BRANCH:
            ends = [self._sequence(one, self._after(at), mode, looped=looped) for one in value[1]]
            after = self._node()
            for end in ends:
                self.edges[end].append((after, None))
            return after
        if operation in {sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT}:
            return self._repeat(*value, at=at, mode=mode, looped=looped)
        if operation is sre.AT:
            return self._after(at, self._anchor(value))
        if operation in {sre.ASSERT, sre.ASSERT_NOT}:
            direction, body = value
            if direction > 0:
                self.bodies.append((body, "search" if looped else "match"))
            return self._after(at, _TEST)
        raise NotImplementedError(f"{operation}: teach this file to read it")

    def _anchor(self, value: Any) -> str:
        if value in {sre.AT_BEGINNING, sre.AT_BEGINNING_STRING}:
            return _LINE if self.flags & re.MULTILINE and value is sre.AT_BEGINNING else _BEGIN
        return _TEST

    def _repeat(self, low: int, high: int, body: Any, *, at: int, mode: Mode, looped: bool) -> int:
        for _ in range(min(low, 2)):
            at = self._sequence(body, at, mode, looped=looped)
        if high is sre.MAXREPEAT or high > self.long:
            head = self._after(at)
            end = self._sequence(body, self._after(head), mode, looped=True)
            self.edges[end].append((head, None))
            return self._after(head)
        ends = [at]
        for _ in range(min(high - low, 3)):
            at = self._sequence(body, self._after(at), mode, looped=looped)
            ends.append(at)
        after = self._node()
        for end in ends:
            self.edges[end].append((after, None))
        return after

    def _matched(self, operation: Any, value: Any) -> frozenset[str]:
        if operation is sre.ANY:
            return self.letters if self.flags & re.DOTALL else self.letters - {"\n"}
        if operation in {sre.LITERAL, sre.NOT_LITERAL}:
            items, negated = [(sre.LITERAL, value)], operation is sre.NOT_LITERAL
        else:
            items = [item for item in value if item[0] is not sre.NEGATE]
            negated = len(items) < len(value)
        return frozenset(c for c in self.letters if self._one_of(c, items) != negated)

    def _one_of(self, character: str, items: Iterable[Any]) -> bool:
        cases = {character}
        if self.flags & re.IGNORECASE:
            cases |= {character.lower(), character.upper()}
        return any(
            len(c) == 1 and _is(c, kind, value, self.flags) for c in cases for kind, value in items
        )


def _is(character: str, kind: Any, value: Any, flags: int) -> bool:
    if kind is sre.LITERAL:
        return ord(character) == value
    if kind is sre.RANGE:
        return bool(value[0] <= ord(character) <= value[1])
    return re.fullmatch(_CATEGORIES[value], character, flags & re.ASCII) is not None


def _characters(parsed: Any) -> Iterator[str]:
    """Characters at which the classes of an expression begin and end, and those beside them."""
    if not isinstance(parsed, parser.SubPattern | list | tuple) or not len(parsed):
        return
    edges: Any = ()
    if parsed[0] is sre.LITERAL or parsed[0] is sre.NOT_LITERAL:
        edges = parsed[1:]
    elif parsed[0] is sre.RANGE:
        edges = parsed[1]
    for code in edges:
        yield from (chr(c) for c in (code - 1, code, code + 1) if 0 <= c <= 0x10FFFF)
    if not edges:
        for item in parsed:
            yield from _characters(item)


_Node = TypeVar("_Node")


def _reached(graph: Mapping[_Node, Iterable[_Node]], start: _Node) -> set[_Node]:
    """Nodes that one or more steps from the start lead to."""
    todo, seen = [start], set[_Node]()
    while todo:
        for node in graph[todo.pop()]:
            if node not in seen:
                seen.add(node)
                todo.append(node)
    return seen
