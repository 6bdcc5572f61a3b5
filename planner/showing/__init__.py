"""What people see: tables, formats, progress. Pure text; only ``planner.console`` writes it."""
