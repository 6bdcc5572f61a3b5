"""What each rule asks for, who keeps and who breaks it, and what it declares to the program and the start.

The program, the search and `show` come in. Its rows are in `models.program.rules`, its check is the judge's.
"""
