"""Replays of traces against the rules of other schedulers, and traces recorded from snapshots."""
