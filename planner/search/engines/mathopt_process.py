"""MathOpt solves in processes of their own, which can be killed, and may die, without harm to others.

HiGHS takes no interrupter, and its presolve overruns a limit by a minute on a large program; GLOP
was seen to end with a segmentation fault on a very large one. Run as a script, this file reads
requests from stdin, writes their results to stdout, and ends with its parent.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, ClassVar

REUSED_BYTES = 4_000_000
"""After a larger request a process ends: it would keep the memory that this took."""


class SolverProcess:
    """``solve`` returns the result, or None if the process was killed, or died, without one.

    ``take`` gives one that is ready. The next one loads the solver while this one works on a large request;
    after a small one it is ready for another: to start takes longer than most of these. ``turn``: of the
    call that has it, so that who gives up a call that is over stops no other.
    """

    _ready: ClassVar[list[SolverProcess]] = []
    _lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def take(cls) -> SolverProcess:
        """A process for one call."""
        with cls._lock:
            while cls._ready:
                one = cls._ready.pop()
                if one.alive:
                    return one
                one.reap()
            return cls()

    @classmethod
    def prepare(cls) -> None:
        """Start the process of the next call."""
        with cls._lock:
            if not cls._ready:
                cls._ready.append(cls())

    @classmethod
    def dismiss(cls) -> None:
        """End the processes that wait for a call."""
        with cls._lock:
            ready = [*cls._ready]
            cls._ready.clear()
        for one in ready:
            one.kill()
            one.reap()

    def __init__(self) -> None:
        self._killed = False
        self.turn = 0
        self._process = subprocess.Popen(  # noqa: S603  # an argv list of ours, no shell
            # -P: the files next to this one are no top-level modules. A session of its own: Ctrl-C
            # goes to the planner, which then decides.
            [sys.executable, "-P", __file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def kill(self, turn: int | None = None) -> None:
        """End it; with a turn only if the call is not over."""
        with self._lock:
            if turn in (None, self.turn):
                self._killed = True
                self._process.kill()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def reap(self) -> None:
        """Forget a process that has ended."""
        with self._process:
            pass

    def solve(self, solver_type: int, model: Any, parameters: Any, start: Any) -> Any:
        from ortools.math_opt import result_pb2

        blocks = [solver_type.to_bytes(4, "little")]
        blocks += [message.SerializeToString() for message in (model, parameters, start)]
        request = b"".join(len(block).to_bytes(8, "little") + block for block in blocks)
        answer = self._answer(request)
        with self._lock:
            self.turn += 1
            again = answer is not None and len(request) <= REUSED_BYTES and not self._killed
            if again:
                self._ready.append(self)
        if again:
            return result_pb2.SolveResultProto.FromString(answer) if answer else None
        # It ends once no request can come. One that was killed has closed its end already.
        with suppress(BrokenPipeError), self._process as process:
            assert process.stdin is not None, "it is a pipe"
            process.stdin.close()
        process.wait()
        if process.returncode < 0 and not self._killed:
            died = signal.Signals(-process.returncode).name
            logging.getLogger(__name__).warning("a solver process died of %s: no answer", died)
        if process.returncode > 0 and not answer:
            raise RuntimeError("the solver's process failed; its message is on stderr")
        return result_pb2.SolveResultProto.FromString(answer) if answer else None

    def _answer(self, request: bytes) -> bytes | None:
        """The result of a request, empty where the solver itself reports an error; None if there is none."""
        if len(request) > REUSED_BYTES:
            self.prepare()
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None, "it is a pipe"
        assert stdout is not None, "it is a pipe"
        try:
            stdin.write(request)
            stdin.flush()
        except BrokenPipeError:
            return None
        size = stdout.read(8)
        answer = stdout.read(int.from_bytes(size, "little")) if len(size) == 8 else b""
        return answer if len(size) == 8 and len(answer) == int.from_bytes(size, "little") else None


def _read(stream: IO[bytes]) -> bytes:
    return stream.read(int.from_bytes(stream.read(8), "little"))


def _serve() -> None:
    from ortools.math_opt import (
        callback_pb2,
        model_parameters_pb2,
        model_pb2,
        parameters_pb2,
    )
    from ortools.math_opt.core.python import solver
    from pybind11_abseil.status import StatusNotOk

    requests = sys.stdin.buffer
    # What the solver prints, as HiGHS does of trouble that it gets over, is neither a result nor for users.
    answers = os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("wb") as null:
        os.dup2(null.fileno(), 1)
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    while block := _read(requests):
        solver_type = int.from_bytes(block, "little")
        model = model_pb2.ModelProto.FromString(_read(requests))
        parameters = parameters_pb2.SolveParametersProto.FromString(_read(requests))
        start = model_parameters_pb2.ModelSolveParametersProto.FromString(_read(requests))
        try:
            result = solver.solve(
                model,
                solver_type,
                parameters_pb2.SolverInitializerProto(),
                parameters,
                start,
                None,
                callback_pb2.CallbackRegistrationProto(),
                None,
                None,
            ).SerializeToString()
        except StatusNotOk:  # HiGHS gives up on a few programs
            result = b""
        answers.write(len(result).to_bytes(8, "little") + result)
        answers.flush()
    os._exit(0)  # no call comes any more


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    _serve()
