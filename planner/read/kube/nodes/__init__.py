"""Nodes: capacity, GPUs, server model."""
