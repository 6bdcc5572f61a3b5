"""The syntax of regular expressions, read into trees.

Promises: as Go's regexp reads it, or refused with the reason: flags, word boundaries, properties
of characters and code points by number are not read. Called by ``patterns``.

Regular expressions from untrusted objects, matched in time linear in the text.

Promises: what Go's regexp means by them, unanchored; no backtracking, bounded memory; ``spent``
counts the work. Called by ``hypernodes``.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from models.units import InvalidValueError, shown

MAX_PATTERN = 500
MAX_NESTING = 40
MAX_REPEAT = 1_000
"""Go's own bound."""

_LAST = 0x10FFFF
Ranges = tuple[tuple[int, int], ...]
"""Code points, as inclusive ranges."""

_DIGIT: Ranges = ((48, 57),)
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Ranges = ((9, 10), (12, 13), (32, 32))
_DOT: Ranges = ((0, 9), (11, _LAST))
_CLASSES = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_POSIX: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "digit": _DIGIT,
    "lower": ((97, 122),),
    "upper": ((65, 90),),
    "word": _WORD,
}
_CONTROL = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "a": 7}


@dataclass(frozen=True, slots=True)
class Tree:
    """A part of a pattern: ``set``, ``only``, ``any`` of parts, ``seq`` of parts, or ``rep``."""

    kind: str
    parts: tuple[Tree, ...] = ()
    ranges: Ranges = ()
    only: str = ""
    least: int = 0
    most: int | None = None


def parsed(pattern: str) -> Tree:
    """The tree of a pattern. Raises InvalidValueError for what is not understood or too long."""
    if len(pattern) > MAX_PATTERN:
        hint = f"the most is {MAX_PATTERN}"
        raise InvalidValueError(f"a pattern of {len(pattern):,} characters is not read", hint)
    return _Reader(pattern).run()


class _Reader:
    """Recursive descent over the text of a pattern."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.depth = 0

    def run(self) -> Tree:
        tree = self.alternatives()
        if self.at < len(self.pattern):
            raise self.refused("a bracket without its partner")
        return tree

    def refused(self, what: str) -> InvalidValueError:
        return InvalidValueError(f"the pattern {shown(self.pattern)} is not read: {what}")

    def peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def take(self) -> str:
        character = self.peek()
        if not character:
            raise self.refused("it breaks off")
        self.at += 1
        return character

    def took(self, text: str) -> bool:
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def alternatives(self) -> Tree:
        branches = [self.sequence()]
        while self.took("|"):
            branches.append(self.sequence())
        return Tree("any", parts=tuple(branches))

    def sequence(self) -> Tree:
        parts: list[Tree] = []
        while self.peek() not in ("", "|", ")"):
            parts.append(self.repeated(self.atom()))
        return Tree("seq", parts=tuple(parts))

    def repeated(self, atom: Tree) -> Tree:
        """The atom with what is written behind it: ``*``, ``+``, ``?``, ``{2,5}``, lazy or not."""
        bounds = self.bounds()
        if bounds is None:
            return atom
        self.took("?")
        if self.peek() in ("*", "+", "?") and self.peek():
            raise self.refused("a repetition of a repetition")
        return Tree("rep", parts=(atom,), least=bounds[0], most=bounds[1])

    def bounds(self) -> tuple[int, int | None] | None:
        if self.took("*"):
            return 0, None
        if self.took("+"):
            return 1, None
        if self.took("?"):
            return 0, 1
        close = self.pattern.find("}", self.at)
        if self.peek() != "{" or close < 0:
            return None
        low, comma, high = self.pattern[self.at + 1 : close].partition(",")
        if not _number(low) or (high and not _number(high)):
            return None  # a brace that is no repetition is an ordinary character
        self.at = close + 1
        least = int(low)
        most = least if not comma else int(high) if high else None
        if least > MAX_REPEAT or (most is not None and (most > MAX_REPEAT or most < least)):
            raise self.refused("a repetition out of bounds")
        return least, most

    def atom(self) -> Tree:
        character = self.take()
        if character == "(":
            return self.group()
        if character == "[":
            return Tree("set", ranges=self.bracket())
        if character in _PLAIN:
            return _PLAIN[character]
        if character == "\\":
            return self.escape()
        if character in "*+?":
            raise self.refused("a repetition of nothing")
        return _one(character)

    def group(self) -> Tree:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self.refused("nested too deep")
        if self.took("?"):
            self.group_name()
        inner = self.alternatives()
        if self.take() != ")":
            raise self.refused("a bracket without its partner")
        self.depth -= 1
        return inner

    def group_name(self) -> None:
        if self.took(":"):
            return
        if not (self.took("P<") or self.took("<")):
            raise self.refused("flags are not read")
        close = self.pattern.find(">", self.at)
        if close < 0 or not self.pattern[self.at : close].replace("_", "a").isalnum():
            raise self.refused("a group without a name")
        self.at = close + 1

    def escape(self) -> Tree:
        character = self.take()
        if character == "A":
            return Tree("only", only="start")
        if character == "z":
            return Tree("only", only="end")
        return Tree("set", ranges=self.escaped(character))

    def escaped(self, character: str) -> Ranges:
        """The characters that a backslash and this one stand for."""
        if character.lower() in _CLASSES:
            ranges = _CLASSES[character.lower()]
            return ranges if character.islower() else _others(ranges)
        if character in _CONTROL:
            return ((_CONTROL[character],) * 2,)
        if character.isalnum() or not character.isascii():
            raise self.refused(f"the escape {shown(character)} is not read")
        return ((ord(character),) * 2,)

    def bracket(self) -> Ranges:
        """The characters of ``[a-z0-9]``, behind its opening bracket."""
        negated = self.took("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or self.peek() != "]":
            first = False
            if self.took("[:"):
                ranges += self.posix()
                continue
            low = self.member()
            single = len(low) == 1 and low[0][0] == low[0][1]
            after = self.pattern[self.at + 1 : self.at + 2]
            if single and self.peek() == "-" and after not in ("]", ""):
                self.at += 1
                high = self.member()
                if len(high) != 1 or high[0][0] != high[0][1] or high[0][0] < low[0][0]:
                    raise self.refused("a range that runs backwards")
                ranges.append((low[0][0], high[0][0]))
            else:
                ranges += low
        self.take()
        return _others(tuple(ranges)) if negated else tuple(ranges)

    def member(self) -> Ranges:
        character = self.take()
        return self.escaped(self.take()) if character == "\\" else ((ord(character),) * 2,)

    def posix(self) -> Ranges:
        close = self.pattern.find(":]", self.at)
        name = self.pattern[self.at : max(close, self.at)]
        if name not in _POSIX:
            raise self.refused("a class of characters that is not read")
        self.at = close + 2
        return _POSIX[name]


def _number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 6


def _one(character: str) -> Tree:
    return Tree("set", ranges=((ord(character),) * 2,))


def _others(ranges: Ranges) -> Ranges:
    """Every code point that is in none of the ranges."""
    result: list[tuple[int, int]] = []
    here = 0
    for low, high in sorted(ranges):
        if low > here:
            result.append((here, low - 1))
        here = max(here, high + 1)
    if here <= _LAST:
        result.append((here, _LAST))
    return tuple(result)


_PLAIN = {
    ".": Tree("set", ranges=_DOT),
    "^": Tree("only", only="start"),
    "$": Tree("only", only="end"),
}


_LAST_PATTERNS = 0x10FFFF

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
        behind = bisect.bisect_left(names, self.literal + chr(_LAST_PATTERNS), first)
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
    """The pattern, ready to search with. Raises InvalidValueError for what is not understood or too large."""
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

    def too_large(self) -> InvalidValueError:
        return InvalidValueError(f"the pattern {shown(self.pattern)} is not read: it is too large")

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
