"""The search: a greedy start, then the tiers one after another, exact where that can be.

Promises: nothing of OR-Tools is imported before a solve starts. Called by ``planner.planning``.
"""

from planner.solving.solve import solve

__all__ = ["solve"]
