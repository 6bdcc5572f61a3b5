"""The checks of ``doctor``: each looks at one thing and says how it is, and what to do about it.

Promises: nothing is changed, on this machine or in the cluster: where only a write would tell, the server
is asked for a dry run. Called by ``planner.verbs.doctor``.
"""
