"""``python -m benchmarks``: run the cases and print the figures."""

from benchmarks.run import main

main()
