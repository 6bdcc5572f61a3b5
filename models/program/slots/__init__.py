"""The program that counts slots by domain, and the rules in it: no variables of single nodes.

`planner.search.bound` solves it, `planner.search.start.homes` follows its solution.
"""
