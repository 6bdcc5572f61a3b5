"""Dialects: what gangplan knows about one scheduler or controller, a module each. Nothing else names it.

How to write one, with LeaderWorkerSet (``leaderworkerset.py``) as the example:

1. ``_KINDS``: its objects, and the fields of them that are read, as rows of ``planner.read.kube.kinds``. What
   is not in a row is neither recorded nor read. A cluster grants ``list`` on it: deploy/base/reading.yaml.
2. A ``ControllerReader``: the labels, annotations or owners by which its pods name it (``part``: which gang
   of it); ``describe``: the roles of that object and their sizes; ``role_index``: role and number of a pod. A
   scheduler that groups pods itself has a ``GroupReader`` in its place.
3. ``leader_worker_pods``: the pods that an object which waits would have, for ``Makes``. A system that keeps
   pods of others' workloads back has a ``Holder``, one that shares out GPUs a ``QuotaReader``, one that gives
   GPUs or parts of them by names of its own a ``GpuSystem``.
4. ``DIALECT``: all of this together, with the annotations that are read, and the precedence: lower than that
   of the kinds which its objects make. It is found by this name.

Functions get untrusted objects: they are bounded, and never raise. A dialect that is taken out leaves pods
that belong to nothing; tests/kube/test_kube_dialects.py takes each out in turn.
"""
