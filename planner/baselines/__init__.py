"""What other schedulers decide about an instance: their published rules, one gang at a time."""
