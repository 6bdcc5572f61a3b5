"""Better plans from a plan: neighbourhoods, exchanges, growth, repair. `solve` and the audit come in."""
