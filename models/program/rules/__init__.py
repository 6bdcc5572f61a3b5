"""The rules of a feasible plan as rows of the program, one concept a file."""
