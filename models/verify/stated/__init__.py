"""The judge's checks of what a plan states beyond its placements: reasons, starts, tiers, moves.

Only `models.verify.check` comes in.
"""
