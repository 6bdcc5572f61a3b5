"""What is done: reading, solving, saving, showing. Imports ``models``; nothing imports ``planner``."""

try:
    import planner._version as _built  # in wheels and sdists: deploy/version.py

    __version__: str = _built.__version__
except ImportError:
    __version__ = "0.2.0"  # the release in preparation
