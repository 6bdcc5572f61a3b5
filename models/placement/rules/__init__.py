"""The rules of feasibility, one a file, each with its mathematics in the docstring."""
