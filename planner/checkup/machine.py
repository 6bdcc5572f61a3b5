"""Checks of this machine: Python and gangplan, the solver, libyaml, kubectl.

Promises: asks no cluster; kubectl is run for its own version only. Called by ``examining``.
"""

from __future__ import annotations

import io
import json
import platform
from collections.abc import Iterator, Mapping

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
    """A queue of two gangs for one server, planned and proven: only one of them has room."""
    hint = "install gangplan anew: pip install --force-reinstall gangplan ortools"
    try:
        from planner.reading import load
        from planner.solving.solve import solve

        solution = solve(load(["-"], stdin=io.BytesIO(_QUEUE)).instance)
    except (ImportError, OSError) as error:
        return Finding("solver", Level.fail, f"cannot be loaded: {error}", hint, 1)
    decided = [decision.decision for decision in solution.decisions]
    if decided != ["place", "wait"] or solution.stopped_by != "proof":
        said = f"a plan of two gangs came out as {', '.join(decided)} ({solution.stopped_by})"
        return Finding("solver", Level.fail, said, hint, 1)
    return well("solver", solution.solver)


_QUEUE = b"""
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: doctor}
spec: {nodes: [{name: n, model: DGX H100}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: first, namespace: doctor}
spec: {priority: 2, roles: [{name: worker, replicas: 1, gpus: 8}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: second, namespace: doctor}
spec: {priority: 1, roles: [{name: worker, replicas: 1, gpus: 4}]}
"""


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
