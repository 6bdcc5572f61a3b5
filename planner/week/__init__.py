"""A week of a cluster: a journal of what was seen, and what placement cost by it. It changes no cluster."""
