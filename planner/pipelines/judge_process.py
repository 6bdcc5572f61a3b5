"""The judge in a process of its own, for large plans: its check takes nothing from the search beside it.

It knows of a plan only the bytes that are saved; it may read those of the instance before there is a plan.
Run as a script, this file reads documents from stdin, writes what is wrong with each to stdout, and ends
with its parent.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any

import msgspec

from planner.signals import kept_from_children

if TYPE_CHECKING:
    from models.instance.instance import Instance
    from models.verify.violation import Violation

APART_FROM = 2_000
"""Nodes and gangs from which on a check takes longer than the start of a process."""

EXPECT = 2
"""In the place of ``refute``: what follows are the lines of the instance of documents to come."""

HEADER = 8
"""Bytes of the length of a document, or of an answer."""


Sent = tuple[int, bytearray, float]
"""What to do with a text, the text, and when it had come."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Violations of a plan; ``refuted``: the tiers whose stated bound is wrong, as in a Verdict.

    ``waited_s``: until the instance that was announced had been read.
    """

    violations: list[Violation]
    refuted: frozenset[str]
    waited_s: float = field(default=0.0, compare=False)


class JudgeProcess:
    """``ask`` sends a document; ``findings`` waits for the answer, None if the process died without one.

    ``expect`` sends the lines of the instance in documents to come, so that it reads them meanwhile.
    """

    def __init__(self) -> None:
        # A signal to all processes of a terminal or a container is the planner's to answer.
        with kept_from_children():
            self._process = subprocess.Popen(  # noqa: S603  # an argv list of ours, no shell
                [sys.executable, "-P", __file__, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )

    def ask(self, document: bytes, *, refute: bool) -> None:
        """Let it check a document. ``refute``: whether better plans are looked for."""
        self._send(int(refute), document)

    def expect(self, instance: bytes) -> None:
        """Let it read an instance, as ``PlanWriter.instance_text`` has it."""
        self._send(EXPECT, instance)

    def _send(self, what: int, text: bytes) -> None:
        assert self._process.stdin is not None, "it is a pipe"
        with suppress(BrokenPipeError):  # it died: ``findings`` says so
            _write(self._process.stdin, bytes([what]))
            _write(self._process.stdin, text)

    def findings(self) -> Findings | None:
        """What is wrong with the document that was sent last."""
        from models.verify.violation import Violation

        assert self._process.stdout is not None, "it is a pipe"
        answer = _read(self._process.stdout)
        if answer is None:
            logging.getLogger(__name__).warning(
                "the process of the judge ended (exit code %d): the plan is checked in this one",
                self._process.wait(),
            )
            return None
        found = msgspec.json.decode(answer)
        violations = [Violation(*one) for one in found["violations"]]
        return Findings(violations, frozenset(found["refuted"]), found["waited"])

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def judge_apart(instance: Instance) -> Iterator[JudgeProcess | None]:
    """A process for the plans of a large instance, which loads the judge meanwhile; None for a small one."""
    if len(instance.cluster.nodes) + len(instance.gangs) < APART_FROM:
        yield None
        return
    process = JudgeProcess()
    try:
        yield process
    finally:
        process.end()


def _write(stream: IO[bytes], block: bytes) -> None:
    stream.write(len(block).to_bytes(HEADER, "little"))
    stream.write(block)
    stream.flush()


def _read(stream: IO[bytes]) -> bytearray | None:
    """The next block; None if the other side ended before its end."""
    size = _filled(stream, bytearray(HEADER))
    return _filled(stream, bytearray(int.from_bytes(size, "little"))) if size else None


def _filled(stream: IO[bytes], block: bytearray) -> bytearray | None:
    """The block with what comes next; None if it is empty, or less comes."""
    view, at = memoryview(block), 0
    while at < len(block) and (count := stream.readinto(view[at:])):  # type: ignore[attr-defined]
        at += count
    return block if 0 < at == len(block) else None


def _serve() -> None:
    import gc

    gc.disable()  # a check makes few cycles; they are collected after its answer
    root = str(Path(__file__).parents[2])
    if root not in sys.path:  # the program may have been started from its folder
        sys.path.insert(0, root)
    # What anything else prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    sent: SimpleQueue[Sent | None] = SimpleQueue()
    threading.Thread(target=_receive, args=(sent,), daemon=True).start()
    checks = _Checks()
    while (received := sent.get()) is not None:
        what, text, at = received
        waited = time.monotonic() - at
        if what == EXPECT:
            checks.expect(text)
            gc.freeze()  # it stays
        else:
            answer = {**checks.answer(text, refute=bool(what)), "waited": waited}
            _write(answers, msgspec.json.encode(answer))
            gc.collect()
        del received, text


def _receive(sent: SimpleQueue[Sent | None]) -> None:
    """Take what comes at once, so that the planner need not wait until it is read."""
    # without a buffer, whose lock an end of the process would wait for
    stdin = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
    while (what := _read(stdin)) is not None and (text := _read(stdin)) is not None:
        sent.put((what[0], text, time.monotonic()))
        del text
    sent.put(None)


class _Checks:
    """Checks documents by their bytes; an instance whose lines it has read is not read again."""

    def __init__(self) -> None:
        from models.verify.check import Judge

        self._judge = Judge()
        self._known: str | None = None
        self._instance: object = None

    def expect(self, lines: bytearray) -> None:
        """Read the lines of an instance."""
        self._known = hashlib.sha256(lines).hexdigest()
        self._instance = msgspec.json.decode(b"{" + lines.rstrip(b",\n") + b"}")["instance"]
        self._judge.expect(self._instance)

    def answer(self, text: bytearray, *, refute: bool) -> dict[str, list[Any]]:
        """What is wrong with a document."""
        verdict = self._judge.check(self._document(text), refute=refute)
        return {
            "violations": [[one.rule, one.gang, one.message] for one in verdict.violations],
            "refuted": sorted(verdict.refuted),
        }

    def _document(self, text: bytearray) -> dict[str, Any]:
        """The document; its instance is the object that was read, if its lines are the same."""
        # only keys of the document itself stand behind two spaces alone
        begin, end = text.find(b'\n  "instance": ') + 1, text.find(b'\n  "spec": ') + 1
        found = 0 < begin < end
        digest = hashlib.sha256(memoryview(text)[begin:end]).hexdigest() if found else None
        if digest is not None and digest == self._known:
            mark = f'"instance": "{digest}",'.encode()
            rest = msgspec.json.decode(b"".join((text[:begin], mark, text[end:])))
            if rest.get("instance") == digest:  # it is the document's own, whatever else it has
                return {**rest, "instance": self._instance}
        plan: dict[str, Any] = msgspec.json.decode(text)
        self._known, self._instance = digest, plan.get("instance")
        return plan


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    _serve()
