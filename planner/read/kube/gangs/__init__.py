"""Gangs: membership, roles, sizes, topology."""
