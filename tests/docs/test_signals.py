"""docs/signals.md lists every signal."""

from __future__ import annotations

import importlib
import pathlib
import pkgutil
import re

import pytest

from overnight import sources

PAGE = (pathlib.Path(__file__).parents[2] / "docs/signals.md").read_text()
ROWS = {
    row[1]: row
    for row in re.finditer(
        r"^\| `([a-z0-9-]+)` \| (\S+) s \|([^|]*)\|([^|]*)\|([^|]+)\|", PAGE, re.MULTILINE
    )
}
SIGNALS = {
    signal.name: signal
    for module in pkgutil.iter_modules(sources.__path__)
    for signal in getattr(
        importlib.import_module(f"overnight.sources.{module.name}"), "SIGNALS", ()
    )
}


@pytest.mark.parametrize("name", SIGNALS)
def test_every_signal_is_on_the_page(name: str) -> None:
    assert name in ROWS, f"docs/signals.md has no row for {name}"
    signal, row = SIGNALS[name], ROWS[name]
    assert float(row[2]) == signal.every
    assert row[3].strip() == signal.key
    columns = re.findall(r"`([^`]+)`", row[4])
    if isinstance(signal, sources.Signal):
        assert columns == list(signal.columns)
    else:
        assert columns


def test_every_signal_on_the_page_exists() -> None:
    assert set(ROWS) == set(SIGNALS)
