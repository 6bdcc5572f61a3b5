"""Kubernetes objects, recorded or live, to the compact documents of the same cluster.

Promises: tolerant of everything an API server or a hand may hold: what cannot be read becomes a
remark, never an exception; what a pod holds is never forgotten. Called by ``planner.reading``.
"""
