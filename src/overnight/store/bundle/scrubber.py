"""Masks secrets in names and texts of a host before they leave it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from overnight.model import secrets

# Random-looking names that are not secret but join findings: ids of containers and ECS tasks, UUIDs of
# pods and boots, runs of overnight, cloud images and instances. `secrets` would mask them.
PLAIN = re.compile(
    r"(?<![A-Za-z0-9+/=])(?:pod)?(?:[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?![A-Za-z0-9+=])"
    r"|(?<![A-Za-z0-9+=])[0-9a-f]{64}(?![A-Za-z0-9+=])"
    r"|(?:(?<=ecs/)|(?<=ecstasks-)|(?<=run-r))[0-9a-f]{32}(?![A-Za-z0-9+=])"
    r"|(?<![A-Za-z0-9+=_-])overnight-[0-9a-f]{8}(?![0-9a-f])"
    r"|(?<![A-Za-z0-9+/=_-])(?:ami|i|vol|eni|vpc|subnet|sg|snap|lt)-[0-9a-f]{8,17}(?![A-Za-z0-9+/=_-])"
)
STAND_IN = re.compile("\0([0-9]+)\0")
HASHED = "$"  # a crypt hash looks like a Java lambda: `$14$0x00000008`


class Scrubber:
    """Masks the same text always in the same way, and counts the masked texts."""

    def __init__(self, hide: Sequence[str] = ()) -> None:
        """Also mask the words in `hide`, each with its own placeholder.

        >>> Scrubber(["acme"]).name("units", "/acme-billing/acme.service")
        '/hidden-1-billing/hidden-1.service'
        """
        self._hidden = {
            re.compile(re.escape(word), re.IGNORECASE): f"hidden-{n}"
            for n, word in enumerate(hide, 1)
        }
        self._seen: dict[str, set[str]] = {}
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._functions: dict[str, str] = {}

    @property
    def masked(self) -> dict[str, int]:
        """Return the number of distinct masked texts by place."""
        return {place: len(texts) for place, texts in sorted(self._seen.items())}

    def note(self, place: str, text: str) -> None:
        """Count a text that the caller masked."""
        self._seen.setdefault(place, set()).add(text)

    def name(self, place: str, text: str) -> str:
        """Mask the name of a process, thread, unit or cgroup. Different names stay different.

        >>> masks = Scrubber()
        >>> masks.name("process names", "kubelet"), masks.name("process names", "ghp_0123456789abcdefXY")
        ('kubelet', '(masked)')
        >>> masks.name("process names", "ghp_zzzzzzzzzzzzzzzzzzzz")
        '(masked) 2'
        """
        scrubbed = self._names.get(text)
        if scrubbed is None:
            scrubbed = _scrub_except_plain(self._hide(text), _scrub_name)
            if secrets.MASK in scrubbed:  # also if the name is literally that
                base, number = scrubbed, 2
                while scrubbed in self._taken:
                    scrubbed, number = f"{base} {number}", number + 1
                self._taken.add(scrubbed)
            self._names[text] = scrubbed
        return self._count(place, text, scrubbed)

    def text(self, place: str, text: str, field: str = "") -> str:
        """Mask free text, or the value of a field."""
        scrubbed = _scrub_except_plain(self._hide(text), lambda plain: secrets.scrub(field, plain))
        return self._count(place, text, scrubbed)

    def fact(self, field: str, text: str) -> str:
        """Mask a host's label or state. Different values stay different: cohorts are built from them.

        >>> masks = Scrubber()
        >>> masks.fact("image", "ami-0a1b2c3d4e5f67890"), masks.fact("api_key", "x1")
        ('ami-0a1b2c3d4e5f67890', '(masked)')
        """
        if secrets.named_secret(field):
            return self.text("facts", text, field)
        return self.name("facts", text)

    def function(self, place: str, text: str) -> str:
        """Mask a name from a symbol table, only if it is certainly a token: mangled names look random.

        >>> Scrubber().function("functions", "_ZNSt6vectorIiSaIiEE9push_backEOi")
        '_ZNSt6vectorIiSaIiEE9push_backEOi'
        """
        scrubbed = self._functions.get(text)
        if scrubbed is None:
            secret = any(not m[0].startswith(HASHED) for m in secrets.SHAPES.finditer(text))
            scrubbed = self._functions[text] = secrets.MASK if secret else self._hide(text)
        return self._count(place, text, scrubbed)

    def _hide(self, text: str) -> str:
        for word, stand_in in self._hidden.items():
            text = word.sub(stand_in, text)
        return text

    def _count(self, place: str, text: str, scrubbed: str) -> str:
        if scrubbed != text:
            self.note(place, text)
        return scrubbed


def _scrub_except_plain(text: str, scrub: Callable[[str], str]) -> str:
    """Scrub with placeholders for known plain names; a text that contains placeholders is not trusted."""
    if "\0" in text:
        return scrub(text)
    kept: list[str] = []

    def stand_in(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    scrubbed = scrub(PLAIN.sub(stand_in, text))
    return STAND_IN.sub(lambda match: kept[int(match[1])], scrubbed)


def _scrub_name(text: str) -> str:
    """Keep the words of a path around a secret one: cgroups are matched by them."""
    scrubbed = "/".join(map(secrets.mask_random, secrets.mask_named(text).split("/")))
    return secrets.MASK if secrets.looks_secret(scrubbed) else scrubbed
