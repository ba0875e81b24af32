"""overnight: turn a sporadic production incident on Linux hosts into a one-night diagnosis."""

__version__ = "0.1.0"
