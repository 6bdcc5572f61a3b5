"""What is given: cluster, gangs, queues and policy as frozen data, and a solution of them.

Everything in the house may come in; from here only `units`, `hardware`, `tiers` and `rates` are asked.
"""
