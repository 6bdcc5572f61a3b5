"""The rows of each rule, one file a rule; `models.program.formulation` adds them."""
