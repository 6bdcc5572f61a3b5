"""How each scheduler and controller names gangs and holds GPUs, one file each."""
