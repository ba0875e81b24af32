from __future__ import annotations

import struct

import pytest

from overnight.sources import cpu
from overnight.sources.perf import events


def test_the_attribute_the_kernel_reads() -> None:
    packed = events.EventAttr(frequency=97).pack()
    assert len(packed) == 112
    kind, size, config, frequency = struct.unpack_from("<IIQQ", packed)
    assert (kind, size, config, frequency) == (1, 112, 0, 97)
    assert struct.unpack_from("<i", packed, 92) == (events.CLOCK_MONOTONIC,)


def test_an_unknown_architecture_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events.platform, "machine", lambda: "pdp11")
    with pytest.raises(OSError, match="pdp11"):
        events.open_event(events.EventAttr(), pid=0, cpu=-1)
    probe = events.probe((0,))
    assert not probe.everywhere
    assert probe.refused[0].startswith("ENOSYS")


def test_a_missing_core_is_refused_with_the_kernels_reason() -> None:
    probe = events.probe((4095,))
    assert probe.cores == ()
    assert list(probe.refused) == [4095]


@pytest.mark.needs_root
def test_an_event_opens_on_every_core_of_this_host() -> None:
    probe = events.probe(cpu.online())
    assert probe.everywhere
    assert probe.kernel_stacks
    assert probe.own_process
