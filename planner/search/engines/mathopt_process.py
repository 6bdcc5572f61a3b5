"""One MathOpt solve in a process of its own, which can be killed.

HiGHS takes no interrupter, and its presolve overruns a limit by a minute on a large program. Run as
a script, this file reads a request from stdin, writes the result to stdout, and ends when stdin closes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import IO, Any


class SolverProcess:
    """``solve`` returns the result, None once ``kill`` was called. The process never outlives it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # an argv list of ours, no shell
            # -P: the files next to this one are no top-level modules. A session of its own: Ctrl-C
            # goes to the planner, which then decides.
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._killed = False

    def kill(self) -> None:
        self._killed = True
        self._process.kill()

    def solve(self, solver_type: int, model: Any, parameters: Any, start: Any) -> Any:
        from ortools.math_opt import result_pb2

        with self._process as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                _write(process.stdin, solver_type.to_bytes(4, "little"))
                for message in (model, parameters, start):
                    _write(process.stdin, message.SerializeToString())
                answer = process.stdout.read()
            except BrokenPipeError:
                answer = b""
            finally:
                process.kill()
        if self._killed:
            return None
        if not answer:
            raise RuntimeError("the solver's process ended without a result")
        return result_pb2.SolveResultProto.FromString(answer)


def _write(stream: IO[bytes], block: bytes) -> None:
    stream.write(len(block).to_bytes(8, "little"))
    stream.write(block)
    stream.flush()


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

    requests = sys.stdin.buffer
    # What the solver prints must not mix with the result.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    solver_type = int.from_bytes(_read(requests), "little")
    model = model_pb2.ModelProto.FromString(_read(requests))
    parameters = parameters_pb2.SolveParametersProto.FromString(_read(requests))
    start = model_parameters_pb2.ModelSolveParametersProto.FromString(_read(requests))

    def end_with_the_planner() -> None:
        requests.read()
        os._exit(1)

    threading.Thread(target=end_with_the_planner, daemon=True).start()
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
    answers.write(result.SerializeToString())
    answers.flush()
    os._exit(0)


if __name__ == "__main__":
    _serve()
