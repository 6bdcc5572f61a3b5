"""The apply state machine: pure, no I/O, clock or randomness."""
