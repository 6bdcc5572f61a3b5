"""The aggregated model: pods pooled by size and domain, for admission at large sizes."""
