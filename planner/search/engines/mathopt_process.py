"""One MathOpt solve in a process of its own, which can be killed, and may die, without harm to others.

HiGHS takes no interrupter, and its presolve overruns a limit by a minute on a large program; GLOP
was seen to end with a segmentation fault on a very large one. Run as a script, this file reads a
request from stdin, writes the result to stdout, and ends with its parent.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO, Any, ClassVar

NO_ANSWER = 3
"""Exit code where the solver itself reports an error."""


class SolverProcess:
    """``solve`` returns the result, or None if the process was killed, or died, without one.

    ``take`` gives one that is ready: the next one loads the solver while this one works.
    """

    _ready: ClassVar[SolverProcess | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def take(cls) -> SolverProcess:
        """A process for one call."""
        with cls._lock:
            ready, cls._ready = cls._ready, None
        return ready or cls()

    @classmethod
    def prepare(cls) -> None:
        """Start the process of the next call."""
        with cls._lock:
            if cls._ready is None:
                cls._ready = cls()

    @classmethod
    def dismiss(cls) -> None:
        """End the process that waits for a call."""
        with cls._lock:
            ready, cls._ready = cls._ready, None
        if ready is not None:
            ready.kill()
            ready.reap()

    def __init__(self) -> None:
        self._killed = False
        self._process = subprocess.Popen(  # noqa: S603  # an argv list of ours, no shell
            # -P: the files next to this one are no top-level modules. A session of its own: Ctrl-C
            # goes to the planner, which then decides.
            [sys.executable, "-P", __file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def kill(self) -> None:
        self._killed = True
        self._process.kill()

    def reap(self) -> None:
        """Forget a process that has ended."""
        with self._process:
            pass

    def solve(self, solver_type: int, model: Any, parameters: Any, start: Any) -> Any:
        from ortools.math_opt import result_pb2

        blocks = [solver_type.to_bytes(4, "little")]
        blocks += [message.SerializeToString() for message in (model, parameters, start)]
        request = b"".join(len(block).to_bytes(8, "little") + block for block in blocks)
        self.prepare()
        with self._process as process:
            answer, _ = process.communicate(request)
        if process.returncode < 0 and not self._killed:
            died = signal.Signals(-process.returncode).name
            logging.getLogger(__name__).warning("a solver process died of %s: no answer", died)
        if process.returncode < 0 or process.returncode == NO_ANSWER:
            return None
        if process.returncode > 0:
            raise RuntimeError("the solver's process failed; its message is on stderr")
        return result_pb2.SolveResultProto.FromString(answer)


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
    # What the solver prints must not mix with the result.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    block = _read(requests)
    if not block:  # no call came
        os._exit(0)
    solver_type = int.from_bytes(block, "little")
    model = model_pb2.ModelProto.FromString(_read(requests))
    parameters = parameters_pb2.SolveParametersProto.FromString(_read(requests))
    start = model_parameters_pb2.ModelSolveParametersProto.FromString(_read(requests))

    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
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
        )
    except StatusNotOk:  # HiGHS gives up on a few programs
        os._exit(NO_ANSWER)
    answers.write(result.SerializeToString())
    answers.flush()
    os._exit(0)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    _serve()
