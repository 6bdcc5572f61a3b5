"""Traces of clusters: our own documents, and the tables that clusters have published."""
