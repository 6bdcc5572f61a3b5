"""What is true and what is best: pure data, formulas and rules; no clock, network or printing."""
