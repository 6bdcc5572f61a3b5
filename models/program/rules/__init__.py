"""The rows of each rule, one file a rule; `models.program.rows` adds them."""
