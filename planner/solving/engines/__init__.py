"""The engines: the only rooms of ``planner`` that import ortools, and only when first used."""
