"""Seeded instances of named sizes and the program that measures the planner on them."""
