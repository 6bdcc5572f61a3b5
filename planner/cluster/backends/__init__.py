"""How the GPUs that a plan chose reach the node: back ends, of which a Policy chooses one.

Whatever module here has a ``BACKEND`` is one, and nothing else names it; a Policy may choose those of
``models.instance.policy.GPU_BACKENDS``. ``base.py`` says what one can do, and has those that write nothing.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from planner.errors import Fault, InputError

if TYPE_CHECKING:
    from planner.cluster.backends.base import Backend


def backend_of(name: str) -> Backend:
    """The back end that ``kubernetes.gpuBackend`` of the Policy names. Raises InputError for another name."""
    from planner.cluster.backends.base import Advisory, NodeChoice

    modules = (import_module(f"{__name__}.{one.name}") for one in iter_modules(__path__))
    found = [one.BACKEND for one in modules if hasattr(one, "BACKEND")]
    for kind in (Advisory, NodeChoice, *found):
        if kind.name == name:
            chosen: Backend = kind()
            return chosen
    what = f"kubernetes.gpuBackend: there is no back end {name} in this program"
    raise InputError(Fault(what, "choose another one in the Policy"))
