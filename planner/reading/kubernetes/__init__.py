"""Kubernetes objects, recorded or live, to the compact documents of the same cluster.

Promises: tolerant of everything an API server or a hand may hold: what cannot be read becomes a
remark, never an exception; what a pod holds is never forgotten. Called by ``planner.reading``.

``objects`` gathers what the documents hold, ``devices``, ``nodes``, ``pods``, ``gangs`` and
``levels`` make neutral ``forms`` of it, ``trees`` makes documents of these, ``assembling`` joins all.
"""
