"""The live cluster, through kubectl and nothing else.

Promises: argv lists, never a shell; no credential is read or kept; every child ends with us.
Called by the verbs that name a cluster.
"""
