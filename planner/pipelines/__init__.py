"""A file a job that several verbs share: plan, run, apply, audit, explain, capacity, what-if.

The verbs come in, and the worker processes that a job starts. Nothing here knows of a terminal.
"""
