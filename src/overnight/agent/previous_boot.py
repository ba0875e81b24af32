"""Events of the boot before this one: a panic, or an end without shutdown. Read once, when the agent starts.

    host.panic           the kernel panicked: pstore or kdump has its last words
    host.unclean_reboot  the host went down without a shutdown record, and nothing says why

Their time is the last sign of life: the last reading, or the last line of the kernel log if that is later. The host
was down when it booted again; `uncertain_seconds` is the time between the two, if the log does not have the panic.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from overnight.agent import event_tracker, kernel_events
from overnight.model import clock, files, times
from overnight.model.event import DEATHS, PANIC, UNCLEAN_REBOOT, Event, Value, boot_name, event_id
from overnight.model.severity import Severity
from overnight.model.times import SECOND_US
from overnight.sources import crashes, kmsg
from overnight.store.ring import layout, reader

if TYPE_CHECKING:
    from overnight.sources import kernelrules

STOPPED = "stopped"  # the boot in which the agent was stopped, as at a shutdown; none while it runs
# A crash kernel writes its dump, and systemd moves pstore, before or soon after the next boot.
BEFORE_US, AFTER_US = 60 * SECOND_US, 600 * SECOND_US
LOG_US = 600 * SECOND_US  # of the log before its end; what is older was seen as it happened
SAME_EVENT_US = 30 * SECOND_US
MAX_AGE_US = 400 * times.DAY_US  # as long as the ring keeps events
EVER = 1 << 62
PANIC_LINE = re.compile(r"Kernel panic - not syncing.*")
TASK_LINE = re.compile(r"CPU: (\d{1,5}) .*?PID: (\d{1,10}) .*?Comm: (.{1,15}?) (?:Tainted|Not tainted)")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Boot:
    """The boot before this one, as far as it was recorded, and what its end left behind."""

    host: str
    id: str
    last: clock.Clock  # of the last reading
    booted_us: int  # when this boot began, wall clock
    left: tuple[crashes.Leftover, ...] = ()

    @property
    def last_us(self) -> int:
        return self.last.wall_ns // 1000

    @property
    def lines(self) -> list[crashes.Line]:
        return sorted({line for each in self.left for line in each.lines})

    @property
    def log_end(self) -> clock.Clock | None:
        """The clock of the last line that was logged; None if there is none of that boot."""
        if not self.lines:
            return None
        end_ns = self.lines[-1].monotonic_us * 1000
        end = clock.Clock(self.last.offset_ns + end_ns, end_ns)
        is_own = self.last_us - BEFORE_US <= end.wall_ns // 1000 <= self.booted_us
        return end if is_own else None


def note_stop(home: pathlib.Path, host: str, boot: str) -> None:
    """Record that the agent was stopped, not killed: without wtmp nothing else shows a shutdown."""
    with contextlib.suppress(OSError):
        files.write_atomically(layout.host_folder(home, host) / STOPPED, boot)


def note_start(home: pathlib.Path, host: str) -> None:
    """Forget an earlier stop in this boot: from now on only the next one counts."""
    with contextlib.suppress(OSError):
        files.remove(layout.host_folder(home, host) / STOPPED)


def find_events(
    home: pathlib.Path,
    host: str,
    boot: str,
    rules: Iterable[kernelrules.Rule],
    *,
    root: pathlib.Path,
    now_us: int,
) -> list[Event]:
    """Return the events of earlier boots that were not reported yet; call it before `note_start`."""
    ring = reader.Reader(home)
    before = _read_boot(ring, host, boot, root, now_us)
    left = [each for each in crashes.read_leftovers(root) if now_us - each.time_us <= MAX_AGE_US]
    times_us = [each.time_us for each in left] + ([before.last_us] if before else [])
    known = ring.events(min(times_us, default=now_us) - times.DAY_US, EVER, (host,))
    left = [each for each in left if not any(_is_of(event, each) for event in known)]
    found: list[Event] = []
    if before is not None:
        earliest, latest = before.last_us - BEFORE_US, before.booted_us + AFTER_US
        near = tuple(each for each in left if earliest <= each.time_us <= latest)
        left = [each for each in left if each not in near]
        before = dataclasses.replace(before, left=near)
        panicked = any(each.is_panic for each in near)
        kind = PANIC if panicked else UNCLEAN_REBOOT
        # Reported before, if the agent was killed before its first reading of this boot.
        ends = {event.kind for event in known if event.boot == before.id}
        is_new = ends.isdisjoint({PANIC, kind})
        if is_new and (panicked or _is_unclean(home, before, root)):
            found.append(_make_end(before, kind))
        found += _find_logged(before, rules, known)
    # The ring does not reach older ones, so the time of the file is all there is.
    found += [
        _make_event(host, each.time_us, "the kernel panicked", [each], {"time_of_file": True})
        for each in left
        if each.is_panic
    ]
    return found


def _read_boot(
    ring: reader.Reader, host: str, boot: str, root: pathlib.Path, now_us: int
) -> Boot | None:
    """Return the boot of the last reading, if it is not this one."""
    extent = ring.extent(host)
    blocks = ring.stretches(host, extent[1]) if extent else ()
    last = max(blocks, key=lambda block: block.end_us, default=None)
    if last is None or last.boot == boot_name(boot):
        return None
    booted_us = now_us
    with contextlib.suppress(OSError, ValueError, IndexError):
        booted_us -= round(float((root / "proc/uptime").read_text().split()[0]) * SECOND_US)
    if booted_us < last.end_us:  # a clock that was set
        booted_us = now_us
    uptime_us = last.uptime_us + last.end_us - last.begin_us
    return Boot(host, last.boot, clock.Clock(last.end_us * 1000, uptime_us * 1000), booted_us)


def _is_unclean(home: pathlib.Path, before: Boot, root: pathlib.Path) -> bool:
    was_shut_down = crashes.read_shutdown(before.last_us - BEFORE_US, root)
    if was_shut_down is not None:
        return not was_shut_down
    try:
        stopped = (layout.host_folder(home, before.host) / STOPPED).read_text()
    except (OSError, ValueError):
        return True
    return boot_name(stopped) != before.id


def _make_end(before: Boot, kind: str) -> Event:
    """Return the event of a boot that ended without a shutdown."""
    log_end = before.log_end
    time_us = max(before.last_us, log_end.wall_ns // 1000 if log_end else 0)
    off = (before.booted_us - time_us) / SECOND_US
    fields: dict[str, Value] = {
        "last_reading": times.format_instant(before.last_us),
        "booted": times.format_instant(before.booted_us),
    }
    if log_end is None or kind == UNCLEAN_REBOOT:
        fields["uncertain_seconds"] = round(off, 1)
    sign = "line of the kernel log" if time_us > before.last_us else "reading"
    text = f"the host booted again {times.format_duration(off)} after the last {sign}"
    text = f"no shutdown record; {text}" if kind == UNCLEAN_REBOOT else text
    return _make_event(before.host, time_us, text, before.left, fields, kind, before)


def _make_event(
    host: str,
    time_us: int,
    text: str,
    left: Sequence[crashes.Leftover],
    fields: dict[str, Value],
    kind: str = PANIC,
    before: Boot | None = None,
) -> Event:
    lines = [line.text for each in left for line in each.lines if not line.from_user]
    panics = [(n, match) for n, line in enumerate(lines) if (match := PANIC_LINE.search(line))]
    tasks = [(n, match) for n, line in enumerate(lines) if (match := TASK_LINE.search(line))]
    task = None
    if panics:
        at, panic = panics[0]
        text = f"{panic[0]}; {text}"
        task = min(tasks, key=lambda found: abs(found[0] - at), default=(0, None))[1]
    if left:
        fields["files"] = " ".join(sorted({path for each in left for path in each.paths}))[:400]
        fields["marks"] = " ".join(mark for each in left for mark in each.marks)[:400]
    boot, at_end = (before.id, before.last) if before else ("", None)
    return Event(
        time_us=time_us,
        kind=kind,
        text=text[: event_tracker.MAX_TEXT],
        host=host,
        core=int(task[1]) if task else -1,
        severity=Severity.CRITICAL,
        id=event_id(host, boot, kind, str(time_us), 0),
        boot=boot,
        monotonic_ns=time_us * 1000 - at_end.offset_ns if at_end else 0,
        process=f"{task[3]}[{task[2]}]" if task else "",
        source="previous-boot",
        fields=fields,
    )


def _is_of(event: Event, leftover: crashes.Leftover) -> bool:
    """Return whether an event reports this crash; systemd may have moved its files since."""
    if event.kind not in DEATHS:
        return False
    if not leftover.marks:
        return abs(event.time_us - leftover.time_us) <= AFTER_US
    return not {*leftover.marks}.isdisjoint(str(event.fields.get("marks", "")).split())


def _find_logged(
    before: Boot, rules: Iterable[kernelrules.Rule], known: Iterable[Event]
) -> list[Event]:
    """Return what the kernel logged at the end of that boot, when nobody could read it any more."""
    end = before.log_end
    if end is None:
        return []
    records = [
        kmsg.Record(n, line.monotonic_us, line.level & 7, line.level >> 3, line.text, read_at=end)
        for n, line in enumerate(before.lines)
        if line.monotonic_us >= end.monotonic_ns // 1000 - LOG_US
    ]
    watch = kernel_events.KernelWatch(rules)
    tracker = event_tracker.EventTracker(before.host, before.id, end)
    sightings = (*watch.check(records, end), *watch.finish(end))
    events = (*tracker.track(sightings, end), *tracker.close())
    found = {event.id: event for event in events}  # in their last form
    times_us = [(event.kind, event.time_us) for event in known]
    return [
        event
        for event in found.values()
        if not any(
            kind == event.kind and abs(time_us - event.time_us) <= SAME_EVENT_US
            for kind, time_us in times_us
        )
    ]
