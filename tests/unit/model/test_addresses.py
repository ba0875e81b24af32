"""Addresses to listen on."""

from __future__ import annotations

import pytest

from overnight import errors
from overnight.model import addresses


@pytest.mark.parametrize(
    "text", ["", "x", "1.2.3.4:", "127.0.0.1:70000", ":-1", "\u00b2", "9" * 5000]
)
def test_an_address_without_a_port_is_refused(text):
    with pytest.raises(errors.UsageError, match=r"is not .ADDRESS:.PORT"):
        addresses.parse_address(text)
