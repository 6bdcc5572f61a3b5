"""The judge's check of stated bounds: it refutes those that a plan beats."""
