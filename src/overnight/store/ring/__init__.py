"""The flight recorder's ring: what each look saw, for days, in a bounded place.

Standard library only, for the host's agent writes it.
"""
