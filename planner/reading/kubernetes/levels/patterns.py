"""Regular expressions from untrusted objects, matched in time linear in the text.

Promises: what Go's regexp means by them, unanchored; no backtracking, bounded memory; ``spent``
counts the work. Called by ``hypernodes``.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from models.quantities import Refused, shown
from planner.reading.kubernetes.levels.pattern_syntax import Ranges, Tree, parsed

_LAST = 0x10FFFF

MAX_STATES = 1_000
MAX_STEPS = 1_000
"""Most steps that are remembered."""


@dataclass(frozen=True, slots=True)
class _State:
    """One state: takes a character of ``ranges``, or none. ``only``: at the ``start`` or ``end``."""

    ranges: Ranges
    following: tuple[int, ...]
    only: str = ""


@dataclass(slots=True)
class Pattern:
    """A compiled pattern. State 0 is the match; sets of states are met once and remembered.

    ``literal``: text that every match starts with; ``anchored``: and the text with it.
    """

    states: list[_State]
    first: int
    steps: dict[tuple[frozenset[int], str, bool], frozenset[int]] = field(default_factory=dict)
    spent: int = 0
    begin: frozenset[int] | None = None
    literal: str = field(init=False)
    anchored: bool = field(init=False)

    def __post_init__(self) -> None:
        state = self.states[self.first]
        self.anchored = state.only == "start"
        if self.anchored:
            state = self.states[state.following[0]]
        found = []
        while len(state.ranges) == 1 and state.ranges[0][0] == state.ranges[0][1] >= 0:
            found.append(chr(state.ranges[0][0]))
            state = self.states[state.following[0]]
        self.literal = "".join(found)

    def search(self, text: str) -> bool:
        """Whether the pattern matches anywhere in the text."""
        self.spent += len(text)
        if self.begin is None:
            self.begin = self._closed((self.first,), start=True)
        here = self.begin if text else self._closed((self.first,), start=True, end=True)
        last = len(text) - 1
        for i, character in enumerate(text):
            if 0 in here:
                return True
            step = (here, character, i == last)
            if (known := self.steps.get(step)) is None:
                known = self._closed((*self._after(here, character), self.first), end=i == last)
                if len(self.steps) < MAX_STEPS:
                    self.steps[step] = known
            here = known
        return 0 in here

    def among(self, names: Sequence[str]) -> Sequence[str]:
        """Those of sorted names that may match: the others lack its literal text."""
        if not self.literal:
            return names
        if not self.anchored:
            return [name for name in names if self.literal in name]
        first = bisect.bisect_left(names, self.literal)
        behind = bisect.bisect_left(names, self.literal + chr(_LAST), first)
        return names[first:behind]

    def _after(self, here: frozenset[int], character: str) -> list[int]:
        code = ord(character)
        return [
            target
            for state in here
            if any(low <= code <= high for low, high in self.states[state].ranges)
            for target in self.states[state].following
        ]

    def _closed(
        self, states: Iterable[int], *, start: bool = False, end: bool = False
    ) -> frozenset[int]:
        """These states and all that empty steps lead to from them."""
        todo = list(states)
        seen: set[int] = set()
        while todo:
            number = todo.pop()
            state = self.states[number]
            if number in seen:
                continue
            seen.add(number)
            holds = state.only == "" or (state.only == "start" and start)
            if not state.ranges and (holds or (state.only == "end" and end)):
                todo += state.following
        self.spent += len(seen)
        return frozenset(seen)


def compiled(pattern: str) -> Pattern:
    """The pattern, ready to search with. Raises Refused for what is not understood or too large."""
    return _Builder(pattern).run()


class _Builder:
    """A tree to states, backwards: every part is built in front of the state that follows it."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.built = 0
        self.states = [_State((), ())]

    def run(self) -> Pattern:
        first = self.build(parsed(self.pattern), 0)
        return Pattern(self.states, first)

    def too_large(self) -> Refused:
        return Refused(f"the pattern {shown(self.pattern)} is not read: it is too large")

    def state(self, state: _State) -> int:
        if len(self.states) >= MAX_STATES:
            raise self.too_large()
        self.states.append(state)
        return len(self.states) - 1

    def build(self, tree: Tree, following: int) -> int:
        """States of a tree in front of the one that follows; gives the first of them."""
        self.built += 1
        if self.built > 2 * MAX_STATES:  # repeating what is empty makes no state
            raise self.too_large()
        if tree.kind == "set":
            return self.state(_State(tree.ranges or ((-1, -1),), (following,)))
        if tree.kind == "only":
            return self.state(_State((), (following,), tree.only))
        if tree.kind == "any":
            if len(tree.parts) == 1:
                return self.build(tree.parts[0], following)
            branches = tuple(self.build(part, following) for part in tree.parts)
            return self.state(_State((), branches))
        if tree.kind == "seq":
            for part in reversed(tree.parts):
                following = self.build(part, following)
            return following
        return self.build_repeated(tree, following)

    def build_repeated(self, tree: Tree, following: int) -> int:
        part = tree.parts[0]
        if tree.most is None:
            loop = self.state(_State((), ()))
            body = self.build(part, loop)
            self.states[loop] = _State((), (body, following))
            following = loop
        else:
            end = following
            for _ in range(tree.most - tree.least):
                body = self.build(part, following)
                following = self.state(_State((), (body, end)))
        for _ in range(tree.least):
            following = self.build(part, following)
        return following
