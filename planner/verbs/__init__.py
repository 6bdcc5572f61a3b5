"""The verbs of the command line, one file each; ``planner.cli`` only registers them."""
