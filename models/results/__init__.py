"""What is written of an instance and its solution: the plan, an audit, a comparison.

The pipelines come in, and `show` for what it draws.
"""
