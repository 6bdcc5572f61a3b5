"""The aggregated model: identical gangs are counted and their pods are pooled, for large instances."""
