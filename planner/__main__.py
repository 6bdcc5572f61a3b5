"""Entry point of ``gangplan`` and ``kubectl-gangplan``: loads the command line and hands over.

Promises: imports nothing before ``main``, so that Ctrl-C while modules load ends without a traceback.
"""

from __future__ import annotations

from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    try:
        import gc

        gc.set_threshold(
            50_000, 50, 100
        )  # the default 700 costs a fifth of start-up and half of reading
        from planner.cli.app import main as run
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    run()


if __name__ == "__main__":
    main()
