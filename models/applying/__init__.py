"""The apply state machine, pure: what was seen and what happened in, the next request or a verdict out.

Promises: no I/O, no clock, no randomness; every crash and every fault can be played from memory.
Carried out by ``planner.cluster.applying``.
"""
