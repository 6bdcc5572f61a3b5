"""Better plans from a plan: exchanges, growth, repair. `solve` and the audit come in."""
