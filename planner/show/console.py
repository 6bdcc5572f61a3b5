"""The two streams: data on stdout, messages on stderr; colour, terminals and JSON log lines."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, BinaryIO, TextIO

from planner.errors import CannotWriteError, Fault
from planner.signals import CTRL_C, Interrupted
from planner.untrusted_text import json_safe, safe

MAX_REMARKS = 8
"""Most remarks that a dry run prints."""

if TYPE_CHECKING:
    from planner.show.table import Table

EventValue = str | int | float | bool | None | Mapping[str, float] | Mapping[str, str] | list[str]
"""Types of a field in a JSON log line."""


_LONGEST_ANSWER = 80

BEAT_S = 0.5
"""Seconds between two drawings of what is done."""

WIDTH = 100
"""Columns where they are not known."""

LEAST_WIDTH = 40
"""Narrower terminals are taken to have so many columns."""


class Color(StrEnum):
    """When to use colour: on a terminal, always, never."""

    auto = "auto"
    always = "always"
    never = "never"


class LogFormat(StrEnum):
    """Format of stderr: text, or one JSON object per line."""

    text = "text"
    json = "json"


class Console:
    """The output of one run. ``program``: ``gangplan`` or ``kubectl gangplan``."""

    def __init__(
        self,
        program: str = "gangplan",
        *,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        stdin: BinaryIO | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.program = program
        self.debug = False
        self.arguments: Sequence[str] = ()
        """Of the command line."""
        self._stdout = stdout
        self._stderr = stderr
        self._stdin = stdin
        self.environ = os.environ if environ is None else environ
        self._color = Color.auto
        self._log_format = LogFormat.text
        self._live = False
        self._next: str | None = None
        self.typed = False
        """Whether the input comes from the terminal."""
        self.shorten: Callable[[str], str] | None = None
        """What shortens names that are too long for the tables and lines of this run."""
        self._writing = threading.RLock()
        """Held for a line on stderr: the progress of a search may come from another thread."""
        self._began = 0.0
        self._doing: str | None = None
        self._ended: threading.Event | None = None
        """Set once that is done."""

    def configure(self, *, color: Color, log_format: LogFormat, debug: bool) -> None:
        """Apply the options of the command line."""
        self._color = color
        self._log_format = log_format
        self.debug = debug

    def log_in(self, log_format: LogFormat) -> None:
        """Set the format of stderr."""
        self._log_format = log_format

    @property
    def stdout(self) -> TextIO | None:
        """stdout; None if the caller closed it."""
        return self._stdout or sys.stdout

    @property
    def stderr(self) -> TextIO | None:
        return self._stderr or sys.stderr

    @property
    def stdin(self) -> BinaryIO | None:
        """The stream that ``-`` reads; None if the caller closed it."""
        return self._stdin or (None if sys.stdin is None else sys.stdin.buffer)

    @property
    def json_log(self) -> bool:
        return self._log_format is LogFormat.json

    def is_terminal(self, stream: TextIO | None) -> bool:
        """Whether the stream is a terminal that can move its cursor."""
        if stream is None or self.environ.get("TERM") == "dumb":
            return False
        return stream.isatty()

    def use_color(self, stream: TextIO | None) -> bool:
        """``--color``, then NO_COLOR, then FORCE_COLOR, then whether it is a terminal."""
        if self._color is not Color.auto:
            return self._color is Color.always
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

    @contextlib.contextmanager
    def held_back(self) -> Iterator[io.StringIO]:
        """Collect what is written to stdout meanwhile."""
        before, self._stdout = self._stdout, io.StringIO()
        try:
            yield self._stdout
        finally:
            self._stdout = before

    def document(self, tree: object, form: str = "json") -> None:
        """Write a document to stdout as JSON or YAML, safe for a terminal."""
        if form == "yaml":
            from planner.show.text import yaml_text

            self.data(yaml_text(tree))
        else:
            self.data(json_safe(json.dumps(tree, indent=2, ensure_ascii=False)) + "\n")

    @property
    def width(self) -> int | None:
        """Columns that stdout is folded to: of the terminal, elsewhere COLUMNS; None: unlimited."""
        if self.is_terminal(self.stdout):
            return max(shutil.get_terminal_size((WIDTH, 24)).columns, LEAST_WIDTH)
        columns = _given_columns(self.environ)
        return None if columns is None else max(columns, LEAST_WIDTH)

    def table(self, table: Table) -> None:
        """Write a table to stdout: folded to fit a terminal, otherwise plain and never cut."""
        self.data(self.drawn(table))

    def drawn(self, table: Table, *, width: int | None = None) -> str:
        """The table as it goes to stdout. ``width``: in place of its own."""
        from planner.show.table import draw

        if self.shorten is not None:
            table = table.reworded(self.shorten)
        return draw(table, width=width or self.width, color=self.use_color(self.stdout))

    def sections(self, parts: Iterable[Table | list[str]], *, width: int | None = None) -> str:
        """Tables and sentences as they go to stdout, a blank line between two; empty ones are left out."""
        drawn = []
        for one in parts:
            if isinstance(one, list):
                drawn += [self.lines(one, width=width)] * bool(one)
            elif one.rows or one.notes:
                drawn.append(self.drawn(one, width=width))
        return "\n".join(drawn)

    def lines(self, lines: Sequence[str], *, width: int | None = None) -> str:
        """Sentences as they go to stdout, folded between words like tables."""
        from planner.show.table import Table

        return self.drawn(Table((), (), tuple(lines)), width=width)

    def say(self, text: str, *, fold: bool = True) -> None:
        """Messages on stderr, none in JSON mode.

        On a terminal, sentences fold between words. Indented lines and text that is not to ``fold``
        stay as they are.
        """
        if self.json_log:
            return
        lines = [safe(line) for line in text.split("\n")]
        self._talk("\n".join(map(self._folded, lines) if fold else lines))

    def _folded(self, line: str) -> str:
        """The line, on a terminal folded to its width, continuation lines indented."""
        from planner.show.table import wrapped
        from planner.show.text import width

        room = max(shutil.get_terminal_size((WIDTH, 24)).columns, LEAST_WIDTH)
        if not self.is_terminal(self.stderr) or line.startswith(" ") or width(line) <= room:
            return line
        return "\n  ".join(wrapped(line, room - 2))

    def warn(self, text: str) -> None:
        """A warning on stderr: one line, folded on a terminal."""
        if self.json_log:
            return
        label = "warning:"
        line = self._folded(f"{label} {safe(text)}").removeprefix(label)
        self._talk(_paint(label, "33", color=self.use_color(self.stderr)) + line)

    def ask(self, question: str) -> bool:
        """Ask on the terminal. Anything but y or yes means no, as does Ctrl-C."""
        stream, answers = self.stderr, self.stdin
        if stream is None or answers is None:
            return False
        self.clear_live()
        self._write(stream, self._folded(f"{safe(question)} [y/N]") + " ")
        try:
            answer = answers.readline(_LONGEST_ANSWER)
        except Interrupted as interrupted:
            self._write(stream, "\n")
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
        from models.units import shown_of

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
        if self.json_log:
            self.event(
                "error",
                error=safe(fault.what),
                file=None if fault.file is None else safe(fault.file),
                line=fault.line,
                column=fault.column,
                hint=None if fault.hint is None else safe(fault.hint),
            )
            return
        lines = []
        for line in map(safe, fault.lines()):
            label, space, rest = line.partition(" ")
            code = {"error:": "1;31", "hint:": "36"}.get(label)
            color = code is not None and self.use_color(self.stderr)
            lines.append(_paint(label, code or "", color=color) + space + rest)
        self._talk("\n".join(lines))

    def live(self, text: str) -> None:
        """Replace the live line on the terminal."""
        with self._writing:
            self._end_doing()
            self._draw(text)

    def _draw(self, text: str) -> None:
        if self.stderr is not None:
            self._write(self.stderr, f"\r\x1b[2K{text[: self.live_width - 1]}")
            self._live = True

    def _end_doing(self) -> None:
        self._doing = None
        if self._ended is not None:
            self._ended.set()
            self._ended = None

    @property
    def live_width(self) -> int:
        """Columns of the terminal of the live line: of stderr, since engines may hold stdout back."""
        columns = _given_columns(self.environ)
        if columns is None and self.stderr is not None:
            with contextlib.suppress(OSError, ValueError):  # no descriptor, or no terminal
                columns = os.get_terminal_size(self.stderr.fileno()).columns
        return max(columns or 80, 21)

    def doing(self, text: str) -> None:
        """What is done now and for how long: the live line on a terminal, nothing elsewhere.

        Nor while the user types the input.
        """
        if not self.is_terminal(self.stderr) or self.json_log or self.typed:
            return
        with self._writing:
            if self._doing != safe(text):
                self._doing, self._began = safe(text), time.monotonic()
            self._draw_doing()
            if self._ended is None:
                self._ended = threading.Event()
                name, ended = "live line", self._ended
                threading.Thread(target=self._beat, args=(ended,), name=name, daemon=True).start()

    def _beat(self, ended: threading.Event) -> None:
        """Draw what is done again and again, so that the seconds go on, until it is done."""
        while not ended.wait(BEAT_S):
            with self._writing:
                if not ended.is_set():
                    self._draw_doing()

    def _draw_doing(self) -> None:
        if self._doing is not None:
            self._draw(f"{time.monotonic() - self._began:5.1f}s  {self._doing}")

    def clear_live(self) -> None:
        """Clear the live line; nothing is done any more."""
        with self._writing:
            self._end_doing()
            self._wipe()

    def _wipe(self) -> None:
        with self._writing:
            if self._live and self.stderr is not None:
                self._live = False
                self._write(self.stderr, "\r\x1b[2K")

    def _talk(self, text: str) -> None:
        if self.stderr is not None:
            with self._writing:
                self._wipe()
                self._write(self.stderr, text + "\n")
                self._draw_doing()

    @staticmethod
    def _write(stream: TextIO, text: str) -> None:
        """Messages are dropped if stderr is closed."""
        try:
            stream.write(text)
            stream.flush()
        except OSError:
            return


def _given_columns(environ: Mapping[str, str]) -> int | None:
    """COLUMNS, None if it is no number above zero."""
    columns = environ.get("COLUMNS", "")[:6]
    return int(columns) or None if columns.isascii() and columns.isdigit() else None


def _paint(text: str, code: str, *, color: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if color else text


def _sink_stdout() -> None:
    """Redirect the rest of stdout's buffer to /dev/null, so that the flush at exit does not fail."""
    if sys.__stdout__ is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
