"""The report: one HTML page of a plan, an audit or a replay, complete in itself."""
