"""Pods: requests, constraints, placement, GPUs held."""
