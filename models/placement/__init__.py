"""The formulation: an Instance as one integer linear program, tier by tier.

Promises: every rule of the contract stands here once, and once more, written apart, in checking.
The program is plain data (``program``); only ``engines`` hands it to OR-Tools.
"""
