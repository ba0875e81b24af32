"""The native recorder when the kernel refuses events."""

from __future__ import annotations

import errno
import os
import types

import pytest

from overnight import errors
from overnight.sources import perf
from overnight.sources.perf import events, native_recorder, ring


def kernel(monkeypatch, *, refuse):
    """Replace the kernel by one that fails where `refuse(attr)` gives an error number."""

    def open_event(attr, *, pid, cpu):
        code = refuse(attr)
        if code:
            raise OSError(code, os.strerror(code))
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(events, "open_event", open_event)


def test_a_permissive_kernel_grants_everything(monkeypatch):
    kernel(monkeypatch, refuse=lambda attr: 0)
    best = events.best_attr(native_recorder.ATTR, 0)
    assert best.type == events.TYPE_HARDWARE
    assert best.flags == native_recorder.ATTR.flags
    assert best.read_format & events.FORMAT_LOST


def test_the_clock_is_used_without_a_cycle_counter(monkeypatch):
    kernel(monkeypatch, refuse=lambda attr: attr.type == events.TYPE_HARDWARE and errno.ENOENT)
    best = events.best_attr(native_recorder.ATTR, 0)
    assert best.type == events.TYPE_SOFTWARE
    assert not best.flags & events.EXCLUDE_KERNEL


def test_only_user_stacks_when_the_kernel_is_hidden(monkeypatch):
    hides = lambda attr: 0 if attr.flags & events.EXCLUDE_KERNEL else errno.EACCES  # noqa: E731
    kernel(monkeypatch, refuse=hides)
    assert events.best_attr(native_recorder.ATTR, 0).flags & events.EXCLUDE_KERNEL


def test_an_old_kernel_gets_fewer_features(monkeypatch):
    def old(attr):
        new = attr.flags & events.KSYMBOL or attr.read_format & events.FORMAT_LOST
        return errno.EINVAL if new else 0

    kernel(monkeypatch, refuse=old)
    best = events.best_attr(native_recorder.ATTR, 0)
    assert best.flags & events.MMAP2
    assert not best.flags & (events.KSYMBOL | events.EXCLUDE_KERNEL)


def test_a_refusal_has_a_next_step_and_leaves_nothing_behind(monkeypatch, tmp_path):
    kernel(monkeypatch, refuse=lambda attr: errno.EACCES)
    recorder = native_recorder.NativeRecorder(
        perf.Identity("h", "0" * 32), frequency=97, online=lambda: (0,)
    )
    with pytest.raises(errors.MissingPermissionError) as refused:
        recorder.start(tmp_path)
    assert "Permission denied" in refused.value.why
    assert "perf_event_paranoid" in refused.value.todo
    assert list(tmp_path.iterdir()) == []
    assert not recorder.alive
    assert recorder.poll(0) == recorder.stop() == perf.Progress()


def test_the_memory_barrier_works_on_this_machine():
    ring.fence()


def test_an_unknown_processor_is_refused_rather_than_read_wrongly():
    with pytest.raises(errors.CannotError, match="m68k") as refused:
        ring.barrier("m68k")
    assert "--recorder perf" in refused.value.todo


def test_the_attr_has_the_requested_values():
    packed = native_recorder.ATTR.pack()
    assert len(packed) == 112 == int.from_bytes(packed[4:8], "little")
    assert int.from_bytes(packed[32:40], "little") == native_recorder.ATTR.read_format
    assert int.from_bytes(packed[40:48], "little") == native_recorder.ATTR.flags


def test_a_core_that_cannot_be_opened_for_lack_of_descriptors_was_not_off_line(monkeypatch):
    recorder = native_recorder.NativeRecorder(
        perf.Identity("db-7", "0" * 32), frequency=97, online=lambda: (0, 1)
    )
    recorder._away = {0: 5, 1: 5}
    refusals = {0: errno.EMFILE, 1: errno.ENODEV}

    def open_core(core):
        if number := refusals.pop(core, 0):
            raise OSError(number, os.strerror(number))
        return types.SimpleNamespace(enable=lambda: None)

    monkeypatch.setattr(recorder, "_open", open_core)
    recorder.reprobe()
    assert recorder._gaps == []
    recorder.reprobe()
    assert [gap.why for gap in recorder._gaps] == [
        "core 0 was not sampled: Too many open files", "core 1 was off-line",
    ]  # fmt: skip
