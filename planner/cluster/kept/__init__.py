"""What is kept of every kind, as allow-lists: one file a family.

Promises: no container image, command, argument, variable, probe, volume, secret or managed field has a
rule here, in any kind. Gathered in ``planner.cluster.kinds``.
"""
