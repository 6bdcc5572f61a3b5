"""Controller dialects: one a file; the table of all is ``gangs.table``."""
