"""Every input format, read into one Instance."""
