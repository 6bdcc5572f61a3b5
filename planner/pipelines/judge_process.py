"""The judge in a process of its own, for large plans: its check takes nothing from the search beside it.

It knows of a plan only the bytes that are saved. Run as a script, this file reads documents from stdin,
writes what is wrong with each to stdout, and ends with its parent.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from planner.signals import kept_from_children

if TYPE_CHECKING:
    from models.instance import Instance
    from models.verify.violation import Violation

APART_FROM = 2_000
"""Nodes and gangs from which on a check takes longer than the start of a process."""

HEADER = 8
"""Bytes of the length of a document, or of an answer."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Violations of a plan; ``refuted``: the tiers whose stated bound is wrong, as in a Verdict."""

    violations: list[Violation]
    refuted: frozenset[str]


class JudgeProcess:
    """``ask`` sends a document; ``findings`` waits for the answer, None if the process died without one."""

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
        assert self._process.stdin is not None, "it is a pipe"
        with suppress(BrokenPipeError):  # it died: ``findings`` says so
            _write(self._process.stdin, bytes([refute]))
            _write(self._process.stdin, document)

    def findings(self) -> Findings | None:
        """What is wrong with the document that was sent last."""
        from models.verify.violation import Violation

        assert self._process.stdout is not None, "it is a pipe"
        answer = _read(self._process.stdout)
        if answer is None:
            code = self._process.wait()
            logging.getLogger(__name__).warning(
                "the process of the judge ended (exit code %d): the plan is checked in this one",
                code,
            )
            return None
        found = json.loads(answer)
        violations = [Violation(*one) for one in found["violations"]]
        return Findings(violations, frozenset(found["refuted"]))

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


def _read(stream: IO[bytes]) -> bytes | None:
    """The next block; None if the other side ended before its end."""
    size = int.from_bytes(stream.read(HEADER), "little")
    block = stream.read(size)
    return block if size and len(block) == size else None


def _serve() -> None:
    import gc

    gc.disable()  # a check makes few cycles; they are collected after its answer
    root = str(Path(__file__).parents[2])
    if root not in sys.path:  # the program may have been started from its folder
        sys.path.insert(0, root)
    from models.verify.check import Judge

    # What anything else prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    judge, instance, source = Judge(), b"", None
    while (refute := _read(sys.stdin.buffer)) is not None:
        text = _read(sys.stdin.buffer)
        if text is None:
            break
        plan, before, instance = json.loads(text), instance, _instance(text)
        del text
        if instance and instance == before:
            plan["instance"] = source  # which the judge has read
        source = plan.get("instance")
        verdict = judge.check(plan, refute=bool(refute[0]))
        answer = {
            "violations": [[one.rule, one.gang, one.message] for one in verdict.violations],
            "refuted": sorted(verdict.refuted),
        }
        _write(answers, json.dumps(answer).encode())
        del plan, verdict
        gc.collect()


def _instance(text: bytes) -> bytes:
    """Digest of the lines of the instance, b"" where they are not found.

    Only keys of the document itself stand behind two spaces alone.
    """
    begin, end = text.find(b'\n  "instance": '), text.find(b'\n  "spec": ')
    return hashlib.sha256(memoryview(text)[begin:end]).digest() if 0 <= begin < end else b""


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    _serve()
