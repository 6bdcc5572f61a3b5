"""The integer program: options, regions, packing states, variables, rules, tiers, decoding."""
