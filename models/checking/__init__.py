"""The solver-free judge: feasibility, stated figures and tiers, re-derived from the plan document alone.

Promises: no solver, no formulation code, no exception on hostile documents.
Called by ``verify``, by ``plan`` before anything is saved, and by tests.
"""

from models.checking.judging import check, derive, figures
from models.checking.outlook import Figures
from models.checking.violation import RULES, Violation

__all__ = ["RULES", "Figures", "Violation", "check", "derive", "figures"]
