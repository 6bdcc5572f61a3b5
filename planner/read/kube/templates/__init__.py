"""Workloads that wait and have no pods: which these are, and the pods that their controllers would make."""
