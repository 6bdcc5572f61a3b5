"""The rules of a feasible plan, a concept a file; each yields the violations it finds.

Promises: no rule trusts another; rules of placing bind pods placed or moved, staying pods are exempt.
Called by ``models.checking.judging``.
"""
