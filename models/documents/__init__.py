"""The documents people and machines write, as strict frozen pydantic types."""
