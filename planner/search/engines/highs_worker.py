"""HiGHS as a script: it reads requests from stdin, writes their answers to stdout, and ends with its parent.

Both are pickled dicts after their size in 8 bytes. A request has ``lower``, ``upper`` and ``cost`` of the
variables, to minimise, the ``rows`` that are new, ``anew`` if those are the whole program, the ``kept`` rows
of a goal, ``seconds``, and ``nodes``, None for the LP relaxation; ``whole`` are the variables that branch and
bound makes integral, by default all; without ``heuristics`` it looks for no solutions. The worker keeps the
rows of the last program, and its LP with the basis. Rows are low, high, and by row the columns and
coefficients of a sparse matrix: (low, high, starts, columns, coefficients). An answer has ``status``, and
``values``, ``duals`` of the rows, those of the goal last, ``bound`` and ``effort``, iterations or nodes.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from pathlib import Path
from typing import Any

import highspy
import numpy as np

Rows = tuple[Any, Any, Any, Any, Any]

STATUSES = {
    highspy.HighsModelStatus.kOptimal: "optimal",
    highspy.HighsModelStatus.kInfeasible: "infeasible",
    highspy.HighsModelStatus.kTimeLimit: "late",
}
"""By that of HiGHS; others are ``limit``."""


FEW = 500
"""Pivots that are made from the last basis: then a new start, with presolve, is faster."""

INTERIOR = 40_000
"""From so many variables on a new start is faster with interior points than with simplex: 7 s to 23 s."""

HEURISTICS = (
    "mip_heuristic_run_feasibility_jump",
    "mip_heuristic_run_rens",
    "mip_heuristic_run_rins",
    "mip_heuristic_run_root_reduced_cost",
)
"""Options of HiGHS: together they take a third of the time of a proof."""

SAME = 1e-8
"""Relative distance of an optimum from its bound."""

MANY = (1 << 31) - 1
"""Pivots without a limit."""


class Worker:
    """The last program and its LP. ``base``: rows of the program that the LP has."""

    def __init__(self) -> None:
        self._rows: Rows | None = None
        self._lp: Any = None
        self._base = 0
        self._kept: list[tuple[Any, ...]] = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["anew"]:
            self._rows, self._lp = None, None
        self._rows = _joined(self._rows, request["rows"])
        if request["nodes"] is None:
            return self._relax(request, self._rows)
        return _branched(request, self._rows)

    def _relax(self, request: dict[str, Any], rows: Rows) -> dict[str, Any]:
        lower, upper = request["lower"], request["upper"]
        if self._lp is None:
            self._lp, self._base, self._kept = _loaded(request, rows), len(rows[0]), []
        else:
            self._grow(rows, lower, upper)
        self._keep(request["kept"])
        every = np.arange(len(lower), dtype=np.int32)
        self._lp.changeColsBounds(len(lower), every, lower, upper)
        self._lp.changeColsCost(len(lower), every, request["cost"])
        self._lp.setOptionValue("simplex_iteration_limit", FEW)
        self._lp.setOptionValue("solver", "choose")
        status = _run(self._lp, request["seconds"])
        if self._lp.getModelStatus() == highspy.HighsModelStatus.kIterationLimit:
            self._lp.clearSolver()
            self._lp.setOptionValue("solver", "ipm" if len(lower) > INTERIOR else "choose")
            self._lp.setOptionValue("simplex_iteration_limit", MANY)
            status = _run(self._lp, request["seconds"])
        solution, info = self._lp.getSolution(), self._lp.getInfo()
        return {
            "status": status,
            "values": np.array(solution.col_value if status == "optimal" else ()),
            "duals": np.array(solution.row_dual if solution.dual_valid else ()),
            "bound": float(info.objective_function_value),
            "effort": max(0, int(info.simplex_iteration_count)),
        }

    def _grow(self, rows: Rows, lower: Any, upper: Any) -> None:
        """Add what is new of the program; the rows of the goal, which are the last, come anew."""
        low, high, starts, columns, coefficients = rows
        known, more = self._lp.getNumCol(), len(lower) - self._lp.getNumCol()
        new = slice(self._base, len(low))
        if not more and self._base == len(low):
            return
        self._drop(0)
        if more:
            none, nothing = np.zeros(0, dtype=np.int32), np.zeros(0)
            begin = np.zeros(more, dtype=np.int32)
            self._lp.addCols(
                more, np.zeros(more), lower[known:], upper[known:], 0, begin, none, nothing
            )
        if self._base < len(low):
            at = starts[self._base]
            begin = starts[new] - at
            entries = columns[at:], coefficients[at:]
            self._lp.addRows(len(begin), low[new], high[new], len(entries[0]), begin, *entries)
            self._base = len(low)

    def _keep(self, rows: Rows) -> None:
        """The rows of this goal; those that the last one had keep their part of the basis."""
        low, high, starts, columns, coefficients = rows
        ends = starts[1:]
        wanted = [(columns[a:b], coefficients[a:b]) for a, b in zip(starts, ends, strict=False)]
        same = 0
        for one, known in zip(wanted, self._kept, strict=False):
            if not all(map(np.array_equal, one, known)):
                break
            self._lp.changeRowBounds(self._base + same, float(low[same]), float(high[same]))
            same += 1
        self._drop(same)
        for row in range(same, len(wanted)):
            size = len(wanted[row][0])
            self._lp.addRow(float(low[row]), float(high[row]), size, *wanted[row])
        self._kept = wanted

    def _drop(self, first: int) -> None:
        """Forget the rows of the goal from this one on."""
        gone = np.arange(self._base + first, self._base + len(self._kept), dtype=np.int32)
        if len(gone):
            self._lp.deleteRows(len(gone), gone)
        del self._kept[first:]


def _loaded(request: dict[str, Any], rows: Rows) -> Any:  # a Highs
    low, high, starts, columns, coefficients = rows
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(request["lower"]), len(low)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = request["cost"], request["lower"], request["upper"]
    lp.row_lower_, lp.row_upper_ = low, high
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = starts, columns, coefficients
    if request["nodes"] is not None:
        kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
        whole = np.ones(lp.num_col_, dtype=bool)
        if "whole" in request:
            whole[:] = False
            whole[request["whole"]] = True
        lp.integrality_ = [kinds[one] for one in whole.tolist()]
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)  # noqa: FBT003  # its interface
    highs.setOptionValue("threads", 1)
    highs.passModel(lp)
    return highs


def _joined(rows: Rows | None, more: Rows) -> Rows:
    if rows is None or not len(more[0]):
        return more if rows is None else rows
    starts = np.concatenate((rows[2], more[2][1:] + rows[2][-1]))
    low, high, columns, coefficients = (np.concatenate((rows[i], more[i])) for i in (0, 1, 3, 4))
    return low, high, starts, columns, coefficients


def _run(highs: Any, seconds: float) -> str:  # a Highs
    highs.setOptionValue("time_limit", highs.getRunTime() + seconds)
    highs.run()
    return STATUSES.get(highs.getModelStatus(), "limit")


def _branched(request: dict[str, Any], rows: Rows) -> dict[str, Any]:
    """Branch and bound over the program and the rows of the goal."""
    highs = _loaded(request, _joined(rows, request["kept"]))
    for name in ("mip_max_nodes", "mip_abs_gap", "mip_rel_gap", "random_seed"):
        highs.setOptionValue(name, request[name])
    if not request.get("heuristics", True):
        highs.setOptionValue("mip_heuristic_effort", 0.0)
        for name in HEURISTICS:
            highs.setOptionValue(name, False)  # noqa: FBT003  # its interface
    if len(request.get("hint", ())):
        hint = highspy.HighsSolution()
        hint.col_value = request["hint"]
        highs.setSolution(hint)
    status = _run(highs, request["seconds"])
    solution, info = highs.getSolution(), highs.getInfo()
    if status == "optimal" and len(request.get("hint", ())) and request["mip_rel_gap"] < SAME:
        value = float(np.dot(request["cost"], solution.col_value))
        if value > info.mip_dual_bound + request["mip_abs_gap"] + SAME * abs(value):
            # HiGHS 1.16 returns the hint where presolve alone finds a better solution
            return _branched({**request, "hint": ()}, rows)
    return {
        "status": status,
        "values": np.array(solution.col_value if solution.value_valid else ()),
        "duals": np.zeros(0),
        "bound": float(info.mip_dual_bound),
        "effort": max(0, int(info.mip_node_count)),
    }


def serve(parent: int) -> None:
    requests = sys.stdin.buffer
    # What the solver prints is neither an answer nor for users.
    answers = os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("wb") as null:
        os.dup2(null.fileno(), 1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    worker = Worker()
    while size := requests.read(8):
        block = requests.read(int.from_bytes(size, "little"))
        request = pickle.loads(block)  # noqa: S301  # of our parent
        block = pickle.dumps(worker.answer(request), protocol=5)
        answers.write(len(block).to_bytes(8, "little") + block)
        answers.flush()
    os._exit(0)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
