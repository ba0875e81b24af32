"""docs/reservations.md lists what there is."""

from __future__ import annotations

import pathlib
import re

from overnight import app
from overnight.model.reservation import ReservationState
from overnight.reservations import acceptance, providers

DOCUMENT = (pathlib.Path(__file__).parents[2] / "docs/reservations.md").read_text()


def rows(heading: str) -> set[str]:
    [section] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^\| `([a-z0-9-]+)` \|", section, re.MULTILINE))


def test_every_provider_is_listed() -> None:
    assert rows("Providers") == {module.NAME for module in app.discover(providers)}


def test_every_state_and_check_is_listed() -> None:
    assert rows("Life of a reservation") == {*map(str, ReservationState)}
    assert rows("Checks") == {"load-constancy", *acceptance.NAMES}
