"""Provider errors without prose: a decision that reads it changes, and its test fails."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from overnight import pools

if TYPE_CHECKING:
    import pathlib

    import pytest

    from overnight.model.pool import Reason


def blank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blank every text of a ProviderError at construction; reason, code and nothing_made stay."""
    real = pools.ProviderError.__init__

    def without_prose(
        self: pools.ProviderError,
        reason: Reason,
        message: str,
        *,
        todo: str = "",
        code: str = "",
        nothing_made: bool = False,
    ) -> None:
        real(self, reason, "", code=code, nothing_made=nothing_made)
        self.what = self.why = self.todo = ""

    monkeypatch.setattr(pools.ProviderError, "__init__", without_prose)


def tests_of(path: pathlib.Path) -> dict[str, Any]:
    """Return the tests of another module, to be collected again."""
    spec = importlib.util.spec_from_file_location(f"{path.stem}_without_prose", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: test for name, test in vars(module).items() if name.startswith("test_")}
