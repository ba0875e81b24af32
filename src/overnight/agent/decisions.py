"""What the recording loop does next: state and what one look saw in, instructions out.

No clock is read and nothing is touched here, so that every night that could be is a unit test.
"""

from __future__ import annotations

import dataclasses
import enum

from overnight.sources import perf

__all__ = [
    "Action",
    "Look",
    "Mode",
    "Note",
    "Policy",
    "Start",
    "State",
    "Stop",
    "Switch",
    "decide",
    "started",
]

CLOCK_STEP_NS = 50_000_000
FIRST_RETRY, LAST_RETRY = 0.5, 30.0
HEALTHY_SECONDS = 60.0
# Recording goes on only with a quarter more room than the floor, or it would flap.
RESUME_FACTOR = 1.25
NO_ROOM = "the disk is nearly full"


class Mode(enum.StrEnum):
    """What the recording is doing."""

    RECORDING = "recording"
    PAUSED = "paused"  # no room
    FAILED = "failed"  # the recorder ended; it is tried again


@dataclasses.dataclass(frozen=True)
class Policy:
    """How long a segment is, and how much of the disk stays free."""

    segment_seconds: float
    floor_bytes: int


@dataclasses.dataclass(frozen=True)
class State:
    """What the loop remembers; `since_ns` and `why` tell the gap that is open."""

    mode: Mode
    clock: perf.Clock
    segment_began: float
    started: float
    failures: int = 0
    retry_at: float = 0.0
    since_ns: int = 0
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Look:
    """What one look saw, after the spool was trimmed."""

    now: float
    clock: perf.Clock
    free_bytes: int
    failed: str = ""


@dataclasses.dataclass(frozen=True)
class Start:
    """Start the recorder and tell `started` how it went."""


@dataclasses.dataclass(frozen=True)
class Stop:
    """Stop the recorder."""


@dataclasses.dataclass(frozen=True)
class Switch:
    """Begin a new segment."""


@dataclasses.dataclass(frozen=True)
class Note:
    """Write into the journal of gaps."""

    gap: perf.Gap


Action = Start | Stop | Switch | Note


def retry_delay(failures: int) -> float:
    """Seconds before the next try: doubled each time, half a minute at the most."""
    return min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 16))


def _open_gap(state: State, mode: Mode, begin_ns: int, why: str) -> tuple[State, Note]:
    """An open gap is written down at once, should we be killed in it."""
    changed = dataclasses.replace(state, mode=mode, since_ns=begin_ns, why=why)
    return changed, Note(perf.Gap(begin_ns, begin_ns, why))


def decide(state: State, look: Look, policy: Policy) -> tuple[State, tuple[Action, ...]]:
    """The next state and what to do, in order."""
    actions: list[Action] = []
    step = look.clock.offset_ns - state.clock.offset_ns
    stepped = abs(step) > CLOCK_STEP_NS
    if stepped:
        # From where the clock stood to where it was put: no gap in the samples, but in wall time.
        elapsed = look.clock.monotonic_ns - state.clock.monotonic_ns
        why = f"the clock was set {step / 1e9:+.3f} s"
        actions.append(Note(perf.Gap(state.clock.wall_ns + elapsed, look.clock.wall_ns, why)))
    previous = state.clock
    state = dataclasses.replace(state, clock=look.clock)
    if state.mode is Mode.RECORDING:
        if look.failed:
            healthy = look.now - state.started >= HEALTHY_SECONDS
            failures = 1 if healthy else state.failures + 1
            state = dataclasses.replace(
                state, failures=failures, retry_at=look.now + retry_delay(failures)
            )
            # It was well at the look before: it may have ended at any moment since.
            state, note = _open_gap(state, Mode.FAILED, previous.wall_ns, look.failed)
            return state, (*actions, note)
        if look.free_bytes < policy.floor_bytes:
            state, note = _open_gap(state, Mode.PAUSED, look.clock.wall_ns, NO_ROOM)
            return state, (*actions, Stop(), note)
        if stepped or look.now - state.segment_began >= policy.segment_seconds:
            actions.append(Switch())
            state = dataclasses.replace(state, segment_began=look.now)
        return state, tuple(actions)
    if state.mode is Mode.FAILED and look.free_bytes < policy.floor_bytes:
        return dataclasses.replace(state, mode=Mode.PAUSED), tuple(actions)
    room = look.free_bytes >= policy.floor_bytes * RESUME_FACTOR
    if (state.mode is Mode.PAUSED and room) or (
        state.mode is Mode.FAILED and look.now >= state.retry_at
    ):
        actions.append(Start())
    return state, tuple(actions)


def started(state: State, now: float, clock: perf.Clock, failed: str = "") -> tuple[State, Note]:
    """What follows a `Start`: the gap is closed, or stays open and is tried again later."""
    if failed:
        failures = state.failures + 1
        tried = dataclasses.replace(
            state, mode=Mode.FAILED, failures=failures, retry_at=now + retry_delay(failures)
        )
        return tried, Note(perf.Gap(state.since_ns, clock.wall_ns, state.why))
    gap = perf.Gap(state.since_ns, clock.wall_ns, state.why)
    running = dataclasses.replace(
        state,
        mode=Mode.RECORDING,
        clock=clock,
        segment_began=now,
        started=now,
        since_ns=0,
        why="",
    )
    return running, Note(gap)
