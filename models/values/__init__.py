"""What a plan is worth: the value of each tier, what it leaves free, and bounds that need no solver.

The program, the search and the results come in; the judge computes its own.
"""
