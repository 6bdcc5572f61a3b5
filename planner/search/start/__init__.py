"""The first plan, and plans after a guide: greedy, from an earlier plan, from a solution of the slots.

`solve`, the improvements and the explanations come in.
"""
