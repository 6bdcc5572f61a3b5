"""Server models, and the bandwidth of sets of their GPUs."""
