"""Warm pools: hosts that are ready before anybody asks for them."""
