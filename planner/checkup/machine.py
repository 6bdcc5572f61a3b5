"""Checks of this machine: Python and gangplan, the solver, libyaml, kubectl.

Promises: asks no cluster; kubectl is run for its own version only. Called by ``examining``.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version

from planner import __version__
from planner.checkup.findings import Finding, Level, failed, odd, well
from planner.cluster.children import Children
from planner.cluster.refusals import one_line, understood
from planner.errors import Fault, UnavailableError

_SECONDS = 20.0
_MOST = 2**20


def machine() -> Iterator[Finding]:
    """What needs no kubectl."""
    yield well("gangplan", f"{__version__} with Python {platform.python_version()}")
    yield _solver()
    yield _libyaml()


def _solver() -> Finding:
    """A problem of three numbers, solved."""
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        hint = "install gangplan anew: pip install --force-reinstall gangplan"
        return Finding("solver", Level.fail, f"cannot load OR-Tools: {error}", hint, 1)
    model = cp_model.CpModel()
    numbers = [model.new_int_var(0, 9, name) for name in "abc"]
    model.add(sum(numbers) <= 12)
    model.maximize(cp_model.LinearExpr.weighted_sum(numbers, [1, 2, 3]))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    if status != cp_model.OPTIMAL or solver.objective_value != 33:  # 3 x 9 + 2 x 3
        hint = "install ortools anew; its library does not work on this machine"
        return Finding("solver", Level.fail, f"CP-SAT says {solver.status_name(status)}", hint, 1)
    return well("solver", f"OR-Tools {version('ortools')}: CP-SAT solves")


def _libyaml() -> Finding:
    import yaml

    if yaml.__with_libyaml__:
        return well("libyaml", f"PyYAML {yaml.__version__} with libyaml")
    said = f"PyYAML {yaml.__version__} without libyaml: large files are read several times slower"
    return odd("libyaml", said, "install PyYAML from a wheel: pip install --force-reinstall pyyaml")


def kubectl_version(program: str, environ: Mapping[str, str]) -> tuple[Finding, str | None]:
    """What kubectl says of itself, and its version, such as v1.32.4."""
    try:
        ended = Children().run(
            [program, "version", "--client", "-o", "json"],
            environ=environ,
            seconds=_SECONDS,
            most=_MOST,
        )
    except OSError as error:
        said = f"cannot run {one_line(program)}: {error.strerror or error}"
        return failed("kubectl", UnavailableError(Fault(said, _INSTALL))), None
    told = _version(ended.out)
    if ended.code or told is None:
        said = f"{one_line(program)} tells no version: {understood(ended.talk).message}"
        return failed("kubectl", UnavailableError(Fault(said, _INSTALL))), None
    return well("kubectl", f"{told}, {one_line(program)}"), told


_INSTALL = "install kubectl, or name it: KUBECTL=/path/to/kubectl"


def _version(out: bytes) -> str | None:
    try:
        tree = json.loads(out)
        told = tree["clientVersion"]["gitVersion"]
    except (ValueError, KeyError, TypeError):
        return None
    return one_line(told) if isinstance(told, str) else None
