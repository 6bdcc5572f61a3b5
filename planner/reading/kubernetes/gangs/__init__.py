"""Gangs of Kubernetes pods: which group object a pod belongs to, and which controller made it.

Promises: every pod that holds GPUs or room, or is ours to place, is in exactly one gang; odd
labels become remarks, never exceptions. Called by ``kubernetes.assembling``.
"""

from planner.reading.kubernetes.gangs.reading import read_gangs

__all__ = ["read_gangs"]
