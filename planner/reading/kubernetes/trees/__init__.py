"""Nodes and gangs as the compact documents that people write by hand.

Promises: what no document can say becomes a remark, or holds the gang. Called by
``kubernetes.assembling``.
"""
