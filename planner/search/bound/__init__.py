"""What no plan can exceed, and the plans found on the way: tier by tier. `solve` comes in."""
