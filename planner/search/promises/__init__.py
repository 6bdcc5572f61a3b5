"""When and where gangs that wait will start: forecasts, reservations and their delays. `solve` comes in."""
