"""Why a gang waits, and what would let it start. `solve` comes in for reasons, `explain` for causes."""
