"""What is done: reading, solving, saving, showing. Imports ``models``; nothing imports ``planner``."""

__version__ = "0.2.0"
