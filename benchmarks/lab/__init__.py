"""Replays of traces: jobs over time, against policies and the rules of other schedulers."""
