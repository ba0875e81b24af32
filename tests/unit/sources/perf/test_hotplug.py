"""Core changes derived from the online list and from uevents."""

from __future__ import annotations

from overnight.sources.perf import hotplug


def test_cores_that_go_offline_and_return_are_reported_once():
    cores = [0, 1, 2]
    watch = hotplug.CoreWatch(lambda: tuple(cores))
    assert watch.poll() == hotplug.Change()
    cores.remove(1)
    assert watch.poll() == hotplug.Change(gone=(1,))
    assert watch.poll() == hotplug.Change()
    cores += [1, 7]
    assert watch.poll() == hotplug.Change(back=(1, 7))
    watch.close()
    watch.close()


def test_a_core_that_flapped_between_two_polls_is_gone_and_back(monkeypatch):
    watch = hotplug.CoreWatch(lambda: (0, 1))
    monkeypatch.setattr(watch, "_drain", lambda: frozenset({1, 9}))
    assert watch.poll() == hotplug.Change(gone=(1,), back=(1,))
    watch.close()


def test_only_uevents_of_a_removed_processor_count():
    assert hotplug.parse_uevent(b"offline@/devices/system/cpu/cpu12\0ACTION=offline\0") == 12
    for other in (
        b"online@/devices/system/cpu/cpu12\0",
        b"offline@/devices/system/memory/memory3\0",
        b"offline@/devices/system/cpu/cpufreq\0",
        b"offline@/devices/system/cpu/cpu12",
        b"offline@/devices/system/cpu/cpu99999999999999999999\0",
        b"",
        b"\xff\0",
    ):
        assert hotplug.parse_uevent(other) is None
