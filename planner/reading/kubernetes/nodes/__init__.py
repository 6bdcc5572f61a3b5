"""Nodes: what they offer, how their GPUs are shared, and which server they are.

Promises: one KubeNode a Node object, whatever it says. Called by ``kubernetes.assembling``.
"""

from planner.reading.kubernetes.nodes.reading import read_nodes

__all__ = ["read_nodes"]
