"""Topology levels, from labels or from objects that define them."""
