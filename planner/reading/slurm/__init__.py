"""Slurm topology files to levels."""
