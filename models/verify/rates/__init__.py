"""The judge's own bandwidth and speed of GPU sets."""
