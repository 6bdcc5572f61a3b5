"""The judge: re-derives everything a plan states, without a solver."""
