"""Slurm topology files."""
