"""One file a verb; `planner.cli.app` alone comes in."""
