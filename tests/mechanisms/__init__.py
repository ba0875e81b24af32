"""Real reproductions of mechanisms: a program that keeps one core busy in one way, and a look-alike.

`python -m tests.mechanisms` records each, diagnoses it and writes what the verdict got right. A scene is a
module of `scenes/`. Programs are named by the seed, so that only what they do can identify them.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable
from typing import Literal

Language = Literal["c", "go", "java", "python"]


@dataclasses.dataclass(frozen=True)
class Program:
    """Source of a program that runs until it is killed; SEED is defined in it, NAME is its name.

    Arguments: a folder for its files, another core, and the folder of its cgroup ('' for none).
    """

    text: str
    language: Language = "c"
    options: tuple[str, ...] = ()  # of the interpreter


@dataclasses.dataclass(frozen=True)
class Scene:
    """One mechanism: a program that has it, and one that resembles it but has not.

    `obstacle` returns why this host cannot reproduce it, or ''. `program` is None where no host does.
    """

    name: str
    about: str
    program: Program | None = None
    lookalike: Program | None = None
    resembles: str = ""  # what the look-alike does instead
    actor: str = ""  # regular expression of the culprit's name, with {name}; '': the program
    kinds: tuple[str, ...] = ()  # other findings that state this mechanism
    obstacle: Callable[[], str] = lambda: ""
    has_cgroup: bool = False
    limit_mib: int = 0  # memory limit of the cgroup; 0: none
    lookalike_limit_mib: int = 0
    has_network: bool = False  # a network namespace of its own, with a loopback interface


def discover() -> dict[str, Scene]:
    """Return every scene by its mechanism's name."""
    from tests.mechanisms import scenes

    modules = sorted(module.name for module in pkgutil.iter_modules(scenes.__path__))
    found = [importlib.import_module(f"{scenes.__name__}.{name}").SCENE for name in modules]
    return {scene.name: scene for scene in found}
