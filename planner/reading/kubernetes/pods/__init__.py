"""Pods: what each asks, where it may go, where it stands and what it holds.

Promises: one KubePod a Pod object; what a pod holds is never forgotten. Called by
``kubernetes.assembling``.
"""

from planner.reading.kubernetes.pods.reading import read_pods

__all__ = ["read_pods"]
