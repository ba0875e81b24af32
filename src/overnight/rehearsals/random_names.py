"""Names that the seed chooses: a detector that knows its culprits by heart finds nobody here."""

from __future__ import annotations

import random

__all__ = ["LONGEST", "draw"]

LONGEST = 15  # letters that the kernel keeps of a process's name
FIRST = ("amber", "basalt", "cedar", "delta", "ember", "flint", "garnet", "hazel", "indigo", "juniper", "kestrel", "lumen", "marble", "nimbus", "osprey", "pebble", "quartz", "raven", "saffron", "topaz")  # fmt: skip
SECOND = ("agent", "relay", "probe", "sync", "gate", "meter", "node", "scout", "link", "shipd")


def draw(chance: random.Random, many: int) -> list[str]:
    """So many, no two alike, each as long as a process's name may be."""
    first = chance.sample(FIRST, many)
    return [f"{word}-{chance.choice(SECOND)}"[:LONGEST] for word in first]
