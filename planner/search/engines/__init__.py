"""The solver engines: the only files of planner that import ortools."""
