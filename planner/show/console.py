"""The two streams: data on stdout, messages on stderr; colour, terminals and JSON log lines."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import BinaryIO, TextIO

from models.units import shown_of
from planner.errors import CannotWriteError, Fault
from planner.show.table import Table, draw, paint, wrapped
from planner.show.text import width as text_width
from planner.show.text import yaml_text
from planner.signals import CTRL_C, Interrupted
from planner.untrusted_text import json_safe, safe

MAX_REMARKS = 8
"""Most remarks that a dry run prints."""

EventValue = str | int | float | bool | None | Mapping[str, float] | Mapping[str, str] | list[str]
"""Types of a field in a JSON log line."""


_LONGEST_ANSWER = 80

BEAT_S = 0.5
"""Seconds between two drawings of what is done."""

WIDTH = 100
"""Columns that a plan is drawn for off a terminal."""

_UNKNOWN = 80
"""Columns of a terminal that does not say how many it has."""

LEAST_WIDTH = 40
"""Narrower terminals are taken to have so many columns."""

_LABELS = {"error:": "1;31", "hint:": "36", "warning:": "33"}
"""SGR codes of words that begin a message."""


class Color(StrEnum):
    """When to use colour: on a terminal, always, never."""

    auto = "auto"
    always = "always"
    never = "never"


class LogFormat(StrEnum):
    """Format of stderr: text, or one JSON object per line."""

    text = "text"
    json = "json"


@dataclass(eq=False)
class Console:
    """The output of one run. ``program``: ``gangplan`` or ``kubectl gangplan``.

    Streams are None where the caller closed them. ``arguments``: of the command line. ``typed``: whether the
    input comes from the terminal. ``shorten``: shortens names that are too long for the tables of this run.
    """

    program: str = "gangplan"
    stdout: TextIO | None = field(default_factory=lambda: sys.stdout)
    stderr: TextIO | None = field(default_factory=lambda: sys.stderr)
    stdin: BinaryIO | None = field(
        default_factory=lambda: None if sys.stdin is None else sys.stdin.buffer
    )
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    arguments: Sequence[str] = ()
    color: Color = Color.auto
    log_format: LogFormat = LogFormat.text
    debug: bool = False
    typed: bool = False
    shorten: Callable[[str], str] | None = None

    def __post_init__(self) -> None:
        self._next: str | None = None
        self._writing = threading.RLock()
        """Held for a line on stderr: the progress of a search may come from another thread."""
        self._live = False
        self._began = 0.0
        self._doing: str | None = None
        self._beats = False
        """Whether a thread draws what is done."""

    @property
    def json_log(self) -> bool:
        return self.log_format is LogFormat.json

    def is_terminal(self, stream: TextIO | None) -> bool:
        """Whether the stream is a terminal that can move its cursor."""
        if stream is None or self.environ.get("TERM") == "dumb":
            return False
        return stream.isatty()

    def use_color(self, stream: TextIO | None) -> bool:
        """``--color``, then NO_COLOR, then FORCE_COLOR, then whether it is a terminal."""
        if self.color is not Color.auto:
            return self.color is Color.always
        if self.environ.get("NO_COLOR"):
            return False
        if self.environ.get("FORCE_COLOR"):
            return True
        return self.is_terminal(stream)

    def data(self, text: str) -> None:
        """Write to stdout. A closed pipe (``| head``) or terminal ends the output quietly."""
        stream = self.stdout
        if stream is None:
            return
        self.clear_live()
        try:
            stream.write(text)
            stream.flush()
        except BrokenPipeError:
            _sink_stdout()
        except OSError as error:
            # A terminal that has hung up no longer says that it is one, but is still a device.
            gone = error.errno == errno.EIO and stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
            _sink_stdout()
            if gone:
                return
            raise CannotWriteError(
                Fault(f"cannot write to standard output: {error.strerror or error}")
            ) from error

    def document(self, tree: object, form: str = "json") -> None:
        """Write a document to stdout as JSON or YAML, safe for a terminal."""
        if form == "yaml":
            self.data(yaml_text(tree))
        else:
            self.data(json_safe(json.dumps(tree, indent=2, ensure_ascii=False)) + "\n")

    def _columns(self, stream: TextIO | None) -> int | None:
        """COLUMNS, if it is a number above zero, else those of a terminal; None if it is none."""
        columns = self.environ.get("COLUMNS", "")[:6]
        found = int(columns) if columns.isascii() and columns.isdigit() else 0
        if not found and stream is not None and self.is_terminal(stream):
            with contextlib.suppress(OSError, ValueError):  # no descriptor
                found = os.get_terminal_size(stream.fileno()).columns
            found = found or _UNKNOWN
        return max(found, LEAST_WIDTH) if found else None

    @property
    def width(self) -> int | None:
        """Columns that stdout is folded to; None: unlimited."""
        return self._columns(self.stdout)

    def table(self, table: Table) -> None:
        """Write a table to stdout: folded to fit a terminal, otherwise plain and never cut."""
        self.data(self.drawn(table))

    def drawn(self, table: Table, *, width: int | None = None) -> str:
        """The table as it goes to stdout. ``width``: in place of its own."""
        if self.shorten is not None:
            table = table.reworded(self.shorten)
        return draw(table, width=width or self.width, color=self.use_color(self.stdout))

    def sections(self, parts: Iterable[Table | list[str]], *, width: int | None = None) -> str:
        """Tables and sentences as they go to stdout, a blank line between two; empty ones are left out."""
        tables = [Table((), (), tuple(one)) if isinstance(one, list) else one for one in parts]
        return "\n".join(self.drawn(one, width=width) for one in tables if one.rows or one.notes)

    def lines(self, lines: list[str]) -> str:
        """Sentences as they go to stdout, folded between words like tables."""
        return self.sections([lines])

    def say(self, text: str, *, fold: bool = True) -> None:
        """Messages on stderr, none in JSON mode.

        On a terminal, sentences fold between words. Indented lines and text that is not to ``fold``
        stay as they are.
        """
        if self.json_log:
            return
        lines = [safe(line) for line in text.split("\n")]
        self._talk("\n".join(self._painted(self._folded(line) if fold else line) for line in lines))

    def _folded(self, line: str) -> str:
        """The line, on a terminal folded to its width, continuation lines indented."""
        room = self._columns(self.stderr) if self.is_terminal(self.stderr) else None
        if room is None or line.startswith(" ") or text_width(line) <= room:
            return line
        return "\n  ".join(wrapped(line, room - 2))

    def _painted(self, line: str) -> str:
        label, space, rest = line.partition(" ")
        return paint(label, _LABELS.get(label, "") * self.use_color(self.stderr)) + space + rest

    def warn(self, text: str) -> None:
        """A warning on stderr: one line, folded on a terminal."""
        self.say(f"warning: {safe(text)}")

    def ask(self, question: str) -> bool:
        """Ask on the terminal. Anything but y or yes means no, as does Ctrl-C."""
        if self.stderr is None or self.stdin is None:
            return False
        self.clear_live()
        self._write(self._folded(f"{safe(question)} [y/N]") + " ")
        try:
            answer = self.stdin.readline(_LONGEST_ANSWER)
        except Interrupted as interrupted:
            self._write("\n")
            if interrupted.exit_code != CTRL_C:
                raise
            return False
        return answer.decode("utf-8", errors="replace").strip().lower() in ("y", "yes")

    def next(self, what: str) -> None:
        """Offer a next command: the first that is offered is the last line of a run.

        None that reads standard input, which is gone.
        """
        if self._next is None and " - " not in f"{what} ":
            self._next = what

    def say_next(self) -> None:
        """Print the next command, if one was offered."""
        if self._next is not None:
            self.say(f"next: {self._next}", fold=False)

    def levels_source(self, sentence: str | None) -> None:
        """Where the topology levels come from; None where the input states them itself."""
        if sentence is not None:
            self.say(sentence)
            self.event("levels", found=sentence)

    def remarks(self, remarks: Sequence[str], *, all_with: str | None = None) -> None:
        """Remarks on a reading as warnings: all of them, or the first MAX_REMARKS.

        ``all_with``: the command that shows all of them; None shows them here.
        """
        shown = remarks if all_with is None else remarks[: shown_of(len(remarks), MAX_REMARKS)]
        for line in shown:
            self.warn(line)
        for line in remarks:
            self.event("warning", warning=line)
        if rest := len(remarks) - len(shown):
            self.warn(f"and {rest:,} more; {all_with} shows all")

    def event(self, kind: str, **fields: EventValue) -> None:
        """One JSON object on stderr, only in JSON mode."""
        if self.json_log:
            self._talk(json.dumps({"type": kind, **fields}))

    def error(self, fault: Fault) -> None:
        """An error in at most three lines: what, where, hint."""
        said = {"error": fault.what, "file": fault.file, "hint": fault.hint}
        escaped = {name: one and safe(one) for name, one in said.items()}
        self.event("error", **escaped, line=fault.line, column=fault.column)
        self.say("\n".join(map(safe, fault.lines())), fold=False)

    @property
    def has_live_line(self) -> bool:
        """Whether stderr is a terminal, so that what is done stands in one line of it."""
        return self.is_terminal(self.stderr) and not self.json_log

    def progress(self, seconds: float, parts: Sequence[str]) -> None:
        """What is reached after so long: the live line on a terminal, elsewhere a line of its own.

        Where the terminal is too narrow, its last parts are left out.
        """
        begin = f"{seconds:5.1f}s  "
        lines = [begin + "; ".join(parts[:kept]) for kept in range(len(parts), 0, -1)]
        if not self.has_live_line:
            self.say(lines[0])
            return
        with self._writing:
            self._doing = None
            fitting = (line for line in lines if text_width(line) < self.live_width)
            self._draw(next(fitting, lines[-1]))

    def _draw(self, text: str) -> None:
        self._write(f"\r\x1b[2K{text[: self.live_width - 1]}")
        self._live = True

    @property
    def live_width(self) -> int:
        """Columns of the terminal of the live line: of stderr, since engines may hold stdout back."""
        return self._columns(self.stderr) or _UNKNOWN

    def doing(self, text: str) -> None:
        """What is done now and for how long: the live line on a terminal, nothing elsewhere.

        Nor while the user types the input.
        """
        if not self.has_live_line or self.typed:
            return
        with self._writing:
            if self._doing != safe(text):
                self._doing, self._began = safe(text), time.monotonic()
            self._draw_doing()
            if not self._beats:
                self._beats = True
                threading.Thread(target=self._beat, name="live line", daemon=True).start()

    def _beat(self) -> None:
        """Draw what is done again and again, so that the seconds go on, until it is done."""
        while self._beats:
            time.sleep(BEAT_S)
            with self._writing:
                self._beats = self._doing is not None
                self._draw_doing()

    def _draw_doing(self) -> None:
        if self._doing is not None:
            self._draw(f"{time.monotonic() - self._began:5.1f}s  {self._doing}")

    def clear_live(self) -> None:
        """Clear the live line; nothing is done any more."""
        with self._writing:
            self._doing = None
            self._wipe()

    def _wipe(self) -> None:
        if self._live:
            self._live = False
            self._write("\r\x1b[2K")

    def _talk(self, text: str) -> None:
        with self._writing:
            self._wipe()
            self._write(text + "\n")
            self._draw_doing()

    def _write(self, text: str) -> None:
        """Messages are dropped if stderr is closed."""
        if self.stderr is not None:
            with contextlib.suppress(OSError):
                self.stderr.write(text)
                self.stderr.flush()


def _sink_stdout() -> None:
    """Redirect the rest of stdout's buffer to /dev/null, so that the flush at exit does not fail."""
    if sys.__stdout__ is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
