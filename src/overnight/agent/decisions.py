"""Decide what the profiler does next: state and observation in, instructions out.

Nothing here reads a clock or touches the host, so every possible night is a unit test.
"""

from __future__ import annotations

import dataclasses
import enum

from overnight.model import sizes
from overnight.sources import perf

CLOCK_STEP_NS = 50_000_000
LEAST_SEGMENT_SECONDS = 5.0  # each begins with all processes, 0.1 s of CPU time with its ingest
FIRST_RETRY, LAST_RETRY = 0.5, 30.0
HEALTHY_SECONDS = 60.0
# Recording resumes only with a quarter more room than the floor, or it would flap.
RESUME_FACTOR = 1.25


class Mode(enum.StrEnum):
    RECORDING = "recording"
    PAUSED = "paused"  # no room
    FAILED = "failed"  # the recorder ended; it is tried again


@dataclasses.dataclass(frozen=True)
class Policy:
    segment_seconds: float
    floor_bytes: int


@dataclasses.dataclass(frozen=True)
class State:
    """What the loop remembers; `since_ns` and `why` describe the open gap."""

    mode: Mode
    clock: perf.Clock
    segment_began: float
    started: float
    failures: int = 0
    retry_at: float = 0.0
    since_ns: int = 0
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Observation:
    """What the loop sees once a second, after the spool was trimmed."""

    now: float
    clock: perf.Clock
    free_bytes: int
    failed: str = ""
    is_wanted: bool = False  # somebody waits for the segment that is being written


class Command(enum.Enum):
    START = enum.auto()  # then call `started` with the result
    STOP = enum.auto()
    SWITCH = enum.auto()  # begin a new segment


Action = Command | perf.Gap  # a gap is written into the journal


def retry_delay(failures: int) -> float:
    """Seconds before the next try: doubled each time, at most half a minute."""
    return min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 16))


def _open_gap(state: State, mode: Mode, begin_ns: int, why: str) -> tuple[State, perf.Gap]:
    """Return an open gap, to be written at once in case the process is killed during it."""
    changed = dataclasses.replace(state, mode=mode, since_ns=begin_ns, why=why)
    return changed, perf.Gap(begin_ns, begin_ns, why)


def decide(state: State, seen: Observation, policy: Policy) -> tuple[State, tuple[Action, ...]]:
    """Return the next state and the actions, in order."""
    actions: list[Action] = []
    step = seen.clock.offset_ns - state.clock.offset_ns
    stepped = abs(step) > CLOCK_STEP_NS
    if stepped:
        # From the old clock to the new one: a gap in wall time, not in the samples.
        elapsed = seen.clock.monotonic_ns - state.clock.monotonic_ns
        why = f"the clock was set {step / 1e9:+.3f} s"
        actions.append(perf.Gap(state.clock.wall_ns + elapsed, seen.clock.wall_ns, why))
    previous = state.clock
    state = dataclasses.replace(state, clock=seen.clock)
    if state.mode is Mode.RECORDING:
        if seen.failed:
            healthy = seen.now - state.started >= HEALTHY_SECONDS
            failures = 1 if healthy else state.failures + 1
            state = dataclasses.replace(
                state, failures=failures, retry_at=seen.now + retry_delay(failures)
            )
            # It ran at the observation before; it may have ended at any moment since.
            state, gap = _open_gap(state, Mode.FAILED, previous.wall_ns, seen.failed)
            return state, (*actions, gap)
        if seen.free_bytes < policy.floor_bytes:
            free, floor = map(sizes.format_size, (seen.free_bytes, policy.floor_bytes))
            why = f"the disk is nearly full: {free} of the {floor} that must stay free"
            state, gap = _open_gap(state, Mode.PAUSED, seen.clock.wall_ns, why)
            return state, (*actions, Command.STOP, gap)
        least = LEAST_SEGMENT_SECONDS if seen.is_wanted else policy.segment_seconds
        if stepped or seen.now - state.segment_began >= min(least, policy.segment_seconds):
            actions.append(Command.SWITCH)
            state = dataclasses.replace(state, segment_began=seen.now)
        return state, tuple(actions)
    if state.mode is Mode.FAILED and seen.free_bytes < policy.floor_bytes:
        return dataclasses.replace(state, mode=Mode.PAUSED), tuple(actions)
    room = seen.free_bytes >= policy.floor_bytes * RESUME_FACTOR
    resumes = room if state.mode is Mode.PAUSED else seen.now >= state.retry_at
    if resumes:
        actions.append(Command.START)
    return state, tuple(actions)


def started(
    state: State, now: float, clock: perf.Clock, failed: str = ""
) -> tuple[State, perf.Gap]:
    """Return the state after a START, and its gap, which stays open if that failed."""
    gap = perf.Gap(state.since_ns, clock.wall_ns, state.why)
    if failed:
        failures = state.failures + 1
        retry_at = now + retry_delay(failures)
        return dataclasses.replace(
            state, mode=Mode.FAILED, failures=failures, retry_at=retry_at
        ), gap
    state = dataclasses.replace(
        state, mode=Mode.RECORDING, clock=clock, segment_began=now, started=now, since_ns=0, why=""
    )
    return state, gap
