"""What queues are promised and may hold: shares, cells, reservations, turns, and who could start at all.

The rules, the program and the search come in.
"""
