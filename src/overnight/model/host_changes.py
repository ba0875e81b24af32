"""Built-in changes of a host, and the form of their targets: what a plan, agent.toml and the knowledge may name.

Each word of a target is a plain name or a number: it is never a path with `..`, an option, or part of a shell command.
"""

from __future__ import annotations

import dataclasses
import enum
import re

THEN = " then "  # between the changes of one experiment
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:@\\-]*"
MAX_TARGET = 300


class Builtin(enum.StrEnum):
    PURGE = "purge"
    MASK_UNIT = "mask-unit"
    REBOOT = "reboot"
    MOVE_IRQ = "move-irq"
    CAP_CPU = "cap-cpu"


UNIT = re.compile(rf"{NAME}\.(?:service|socket|timer|path|slice|scope)", re.ASCII)
STARTED = re.compile(rf"{NAME}\.(?:service|socket|timer|path)", re.ASCII)
CGROUP = re.compile(rf"(?:/{NAME})+", re.ASCII)
# Of an interrupt: its number, or the queue of a network interface that it serves.
QUEUE = re.compile(r"(?P<interface>[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}):(?P<queue>[0-9]{1,4})", re.ASCII)  # fmt: skip
IRQ = re.compile(rf"0|[1-9][0-9]{{0,5}}|{QUEUE.pattern}", re.ASCII)
CORE = re.compile(r"0|[1-9][0-9]{0,4}", re.ASCII)  # as the kernel writes it
CAPPED = re.compile(rf"{NAME}\.(?:service|slice|scope)|{CGROUP.pattern}", re.ASCII)
SHARE = re.compile(r"[1-9][0-9]{0,5}%", re.ASCII)  # of one core

# The words of a target: a noun for messages, and the form.
WORDS: dict[Builtin, tuple[tuple[str, re.Pattern[str]], ...]] = {
    Builtin.PURGE: (),
    Builtin.MASK_UNIT: (("a service, socket, timer or path unit", STARTED),),
    Builtin.REBOOT: (),
    Builtin.MOVE_IRQ: (("an interrupt such as 45 or eth0:3", IRQ), ("a core such as 2", CORE)),
    Builtin.CAP_CPU: (("a unit, or a cgroup such as /batch", CAPPED), ("a share of one core such as 50%", SHARE)),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Change:
    """A built-in change and its target, checked."""

    builtin: Builtin
    words: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        return " ".join(self.words)

    def __str__(self) -> str:
        return f"{self.builtin} {self.target}".strip()


def parse(builtin: str, target: str) -> Change:
    """Return the change; raise ValueError with the reason.

    >>> str(parse("cap-cpu", "ember.service 50%"))
    'cap-cpu ember.service 50%'
    >>> parse("mask-unit", "../x.service")
    Traceback (most recent call last):
    ...
    ValueError: '../x.service' is not a service, socket, timer or path unit
    """
    if builtin not in list(Builtin):
        raise ValueError(f"{builtin!r} is not one of {', '.join(Builtin)}")
    change = Change(Builtin(builtin), tuple(target.split(" ")) if target else ())
    forms = WORDS[change.builtin]
    if len(change.words) != len(forms) or len(target) > MAX_TARGET:
        wanted = " and ".join(noun for noun, _ in forms) or "no target"
        raise ValueError(f"{builtin} takes {wanted}, not {target[:MAX_TARGET]!r}")
    for word, (noun, form) in zip(change.words, forms, strict=True):
        if form.fullmatch(word) is None:
            raise ValueError(f"{word!r} is not {noun}")
    return change
