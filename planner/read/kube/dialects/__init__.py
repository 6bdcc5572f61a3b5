"""How each scheduler and controller describes gangs and GPU holdings: one file per dialect."""
