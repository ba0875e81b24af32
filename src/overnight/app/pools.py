"""Use cases of pools: those that need more than one operation of the control plane."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import TYPE_CHECKING, Any

from overnight import app, errors
from overnight.model import data_home

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Mapping, Sequence

    from overnight import pools
    from overnight.model.pool import (
        Autoscale,
        Grant,
        PoolDetails,
        Problem,
        Request,
    )
    from overnight.pools import autoscaler, control


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoolChange:
    """What to set on a pool; None leaves a value as it is, or at its default."""

    template: str | None = None
    target_size: int | None = None
    min_size: int | None = None
    max_size: int | None = None
    lifecycle_class: str | None = None
    region: str | None = None
    preferred_regions: Sequence[str] | None = None
    instance_type: str | None = None
    labels: Mapping[str, str] | None = None
    status: str | None = None
    close_breaker: bool | None = None
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def given(self) -> dict[str, Any]:
        named = {n: v for n, v in vars(self).items() if v is not None and n != "settings"}
        return {**named, **self.settings}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutoscaleChange:
    """What to set on an autoscale policy; None leaves a value as it is, `clear` names those to reset."""

    miss: float | None = None
    min_size: int | None = None
    max_size: int | None = None
    openings: Sequence[str] | None = None
    window_seconds: float | None = None
    cooldown_seconds: float | None = None
    zero_after_seconds: float | None = None
    warm_up_seconds: float | None = None
    burst_mean: float | None = None
    burst_spread: float | None = None
    clear: tuple[str, ...] = ()

    def given(self) -> dict[str, Any]:
        named = {n: v for n, v in vars(self).items() if v is not None and n != "clear"}
        return {**named, **dict.fromkeys(self.clear)}


@dataclasses.dataclass(frozen=True)
class PoolReport:
    """A pool with its problems."""

    details: PoolDetails
    problems: tuple[Problem, ...]

    @property
    def has_alert(self) -> bool:
        return any(problem.alert for problem in self.problems)


@dataclasses.dataclass(frozen=True)
class AutoscaleReport:
    """A pool, its policy, and what the policy would decide now, if that was asked for."""

    details: PoolDetails
    outlook: autoscaler.Outlook | None = None
    message: str = ""

    @property
    def policy(self) -> Autoscale | None:
        return self.details.autoscale if self.outlook is None else self.outlook.policy


def parse_setting(text: str) -> tuple[str, object]:
    """Parse `ready_ttl_seconds=600`."""
    from overnight.pools import settings

    return settings.parse(text)


class Pools:
    """The pools of a data home, or of the database at `url`; opened on first use."""

    def __init__(self, home: pathlib.Path, url: str = "") -> None:
        self.home = home
        self._url = url

    @functools.cached_property
    def _home(self) -> pathlib.Path:
        """The data home, checked: providers end the processes that it lists."""
        if not self._url or self.home.exists():
            data_home.prepare(self.home, trusted=())
        return self.home

    @functools.cached_property
    def plane(self) -> control.ControlPlane:
        """The control plane: every operation on pools and members."""
        from overnight.database import engine
        from overnight.pools import control, providers

        available: dict[str, pools.Provider] = {}
        for module in app.discover(providers):
            create_provider: Callable[[pathlib.Path], pools.Provider] = module.create
            available[str(module.NAME)] = create_provider(self._home)
        url = self._url or engine.default_url(self._home)
        return control.ControlPlane(engine.Database(url), available)

    def create(self, name: str, provider: str, change: PoolChange) -> PoolReport:
        """Create a pool; `serve` launches its members."""
        self.plane.create(name=name, provider=provider, **change.given())
        return self.show(name)

    def update(self, name: str, change: PoolChange) -> PoolReport:
        """Change a pool; at least one change must be given."""
        given = change.given()
        if not given:
            raise errors.UsageError(
                f"no change given for pool {name}",
                why="every option was left out",
                todo="overnight pool update --help",
            )
        self.plane.update(name, **given)
        return self.show(name)

    def show(self, name: str, *, recent: int = 20) -> PoolReport:
        """Return a pool with everything it holds, and its problems."""
        from overnight.pools import problems, reaper

        details = self.plane.show(name, recent=recent)
        seen = self.plane.get(reaper.SEEN)
        reported = problems.find_problems(
            details,
            now_us=self.plane.context.clock(),
            reaper_us=int(seen) if seen else None,
            past=self.plane.past(name),
            orphans=self.plane.orphans_left(details.pool.provider),
        )
        return PoolReport(details, reported)

    def replenish(self, name: str) -> int:
        """Launch what is missing now; return how many."""
        self._require_endpoint()
        self.plane.check(name)
        return self.plane.replenish(name)

    def acquire(self, name: str, request: Request) -> tuple[Grant, ...]:
        """Claim ready members, by the fast path where that is possible."""
        from overnight.database import sqlite_files
        from overnight.pools.sql import fast_claim

        if not self._url:
            path = sqlite_files.default_path(self._home)
            grant = fast_claim.claim_in_file(path, name, request, time.time_ns() // 1000)
            if grant is not None:
                return (grant,)
        if request.cold:
            self._require_endpoint()
        return self.plane.acquire(name, **vars(request))

    def renew(self, claim_id: str, lease_seconds: int) -> Grant:
        from overnight.model.pool import Grant

        claim = self.plane.renew(claim_id, lease_seconds)
        return Grant(self.plane.member(claim.member_id), claim)

    def _require_endpoint(self) -> None:
        """Raise unless members have an endpoint to which they can report that they are ready."""
        if not self.plane.endpoint:
            raise errors.CannotError(
                "members cannot be launched yet",
                why="they could not report that they are ready: no reaper has served from this database",
                todo="overnight pool serve",
            )

    def autoscale(
        self,
        name: str,
        change: AutoscaleChange,
        *,
        on: bool = False,
        off: bool = False,
        dry_run: bool = False,
    ) -> AutoscaleReport:
        """Show, set, try (`dry_run`) or remove (`off`) the policy of a pool; `on` sets the defaults."""
        given = change.given()
        if off and (on or dry_run or given):
            raise errors.UsageError(
                "--off cannot be combined with other options",
                why="it removes the policy",
                todo=f"overnight pool autoscale {name} --off",
            )
        if off:
            removed = self.plane.autoscale_off(name)
            message = "autoscale is off" if removed else "autoscale was already off"
            return AutoscaleReport(self.plane.show(name, recent=1), message=message)
        details = self.plane.show(name, recent=1)
        if dry_run:
            if details.autoscale is None and not (given or on):
                raise errors.CannotError(
                    f"pool {details.pool.name} has no autoscale policy",
                    why="its size is set by hand",
                    todo=f"try the defaults: overnight pool autoscale {name} --on --dry-run",
                )
            return AutoscaleReport(details, self.plane.outlook(name, **given))
        if not given and not on:
            return AutoscaleReport(details)
        self.plane.autoscale(name, **given)
        return AutoscaleReport(
            self.plane.show(name, recent=1), message=f"autoscale is on for pool {name}"
        )
