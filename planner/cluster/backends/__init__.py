"""How the GPUs that a plan chose reach the node, one back end a file."""
