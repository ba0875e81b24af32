"""A process that is killed at one step of an operation, without a process."""

from __future__ import annotations


class KilledError(BaseException):
    """Acts as kill -9: no code under test catches it."""


class Killer:
    """Raises at one step and at all later ones."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.passed: list[str] = []

    def __call__(self, step: str) -> None:
        if len(self.passed) >= self.at:
            raise KilledError(step)
        self.passed.append(step)
