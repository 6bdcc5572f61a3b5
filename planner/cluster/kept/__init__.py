"""Allow-lists of the fields that a snapshot keeps."""
