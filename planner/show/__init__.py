"""Tables, documents and text for people; no I/O."""
