"""Server models and the bandwidth that sets of their GPUs reach."""
