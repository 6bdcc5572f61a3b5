"""The report: one HTML page of a plan or an audit, complete in itself."""
