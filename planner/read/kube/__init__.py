"""Kubernetes objects, read into compact documents."""
