"""Could a gang start on the empty cluster? Counts refute it, a placement proves it.

Rules ask through the instance, where one is made; results and explanations come in.
"""
