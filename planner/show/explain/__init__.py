"""What `explain` shows of one gang. Only its verb comes in."""
