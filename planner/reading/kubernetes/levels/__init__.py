"""Topology levels: from labels, or from objects that know them.

Promises: the first source that knows the levels gives them, and says so. Called by
``kubernetes.assembling``.
"""

from planner.reading.kubernetes.levels.reading import Levels, read_levels

__all__ = ["Levels", "read_levels"]
