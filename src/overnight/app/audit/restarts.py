"""Whether systemd ever gives up on a unit that fails at start: arithmetic on its settings.

systemd gives up when a unit was started more than StartLimitBurst times within
StartLimitIntervalSec (unit_test_start_limit(), by default 5 within 10 s). Between two
starts lies RestartSec, 100 ms by default. So with RestartSec=2s five starts take 10 s: the sixth
always falls into a new interval, and the unit restarts forever.
"""

from __future__ import annotations

import dataclasses
import math

from overnight.model.audit import Evidence
from overnight.sources.image import unitfile


@dataclasses.dataclass(frozen=True)
class Defaults:
    """Defaults of the manager, which system.conf may change."""

    restart: float = 0.1
    interval: float = 10.0
    burst: int = 5

    @classmethod
    def of(cls, settings: unitfile.Settings) -> Defaults:
        builtin = cls()
        return cls(
            _span(settings.last("Manager", "DefaultRestartSec"), builtin.restart),
            _span(
                settings.last(
                    "Manager", "DefaultStartLimitIntervalSec", "DefaultStartLimitInterval"
                ),
                builtin.interval,
            ),
            _whole(settings.last("Manager", "DefaultStartLimitBurst"), builtin.burst),
        )


@dataclasses.dataclass(frozen=True)
class Limit:
    restart: str  # Restart=
    delay: float  # the shortest time that `burst` restarts take
    pause: float  # RestartSec
    interval: float
    burst: int
    evidence: tuple[Evidence, ...]

    @property
    def endless(self) -> bool:
        if self.restart in ("", "no"):
            return False
        return not self.interval or not self.burst or self.delay >= self.interval

    @property
    def says(self) -> str:
        if not self.interval or not self.burst:
            return "the start limit is off"
        return (
            f"{self.burst} restarts take at least {self.delay:g} s, "
            f"and the limit counts those within {self.interval:g} s"
        )


def limit_of(settings: unitfile.Settings, defaults: Defaults) -> Limit:
    restart = settings.last("Service", "Restart")
    pause = settings.last("Service", "RestartSec")
    steps = settings.last("Service", "RestartSteps")
    longest = settings.last("Service", "RestartMaxDelaySec")
    # The names from before version 230 are in [Service], and still count.
    interval = _latest(
        settings.last("Unit", "StartLimitIntervalSec"),
        settings.last("Unit", "StartLimitInterval"),
        settings.last("Service", "StartLimitInterval"),
    )
    burst = _latest(settings.last("Unit", "StartLimitBurst"), settings.last("Service", "StartLimitBurst"))  # fmt: skip
    seconds = _span(pause, defaults.restart)
    count = _whole(burst, defaults.burst)
    delay = _delay(seconds, count, _whole(steps, 0), _span(longest, math.inf))
    written = (restart, pause, steps, longest, interval, burst)
    return Limit(
        restart.value if restart else "",
        delay,
        seconds,
        _span(interval, defaults.interval),
        count,
        tuple(
            Evidence(setting.path, setting.line, f"{setting.key}={setting.value}")
            for setting in written
            if setting
        ),
    )


def ignored_settings(settings: unitfile.Settings) -> tuple[unitfile.Setting, ...]:
    """Return limits that systemd ignores: StartLimitIntervalSec= in [Service]."""
    return settings.all("Service", "StartLimitIntervalSec")


def _delay(pause: float, burst: int, steps: int, longest: float) -> float:
    """Return the sum of the first `burst` pauses, which grow with RestartSteps=."""
    if not steps or not pause or longest in (0, math.inf) or longest <= pause or burst > 10_000:
        return pause * burst
    growth = longest / pause
    return float(sum(pause * growth ** (min(n, steps) / steps) for n in range(burst)))


def _latest(*settings: unitfile.Setting | None) -> unitfile.Setting | None:
    """Return the setting that systemd reads last: drop-ins after the file, lines in order."""
    present = (setting for setting in settings if setting is not None)
    return max(present, key=lambda s: (".d/" in s.path, s.path, s.line), default=None)


def _span(setting: unitfile.Setting | None, default: float) -> float:
    value = unitfile.parse_span(setting.value) if setting else None
    return default if value is None else value


def _whole(setting: unitfile.Setting | None, default: int) -> int:
    try:
        return int(setting.value) if setting else default
    except ValueError:
        return default
