"""The rules of a feasible plan as the judge checks them."""
