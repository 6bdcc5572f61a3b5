"""The judge's proofs of stated bounds: by counting, and by refuting what would be better."""
