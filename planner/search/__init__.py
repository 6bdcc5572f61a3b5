"""The search: a greedy start, then tier by tier."""
