"""Names drawn from the seed, so that no detector can know its culprits by name."""

from __future__ import annotations

import random

MAX_LENGTH = 15  # characters that the kernel keeps of a process name
FIRST = ("amber", "basalt", "cedar", "delta", "ember", "flint", "garnet", "hazel", "indigo", "juniper", "kestrel", "lumen", "marble", "nimbus", "osprey", "pebble", "quartz", "raven", "saffron", "topaz")  # fmt: skip
SECOND = ("agent", "relay", "probe", "sync", "gate", "meter", "node", "scout", "link", "shipd")


def draw(chance: random.Random, count: int) -> list[str]:
    """Draw different names that fit into a process name."""
    first = chance.sample(FIRST, count)
    return [f"{word}-{chance.choice(SECOND)}"[:MAX_LENGTH] for word in first]
