"""What queues are promised and may hold: shares, cells, reservations, turns, and room held for gangs.

The rules, the program and the search come in.
"""
