"""The live cluster, through kubectl and nothing else."""
