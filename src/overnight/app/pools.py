"""Use cases of pools: those that need more than one operation of the control plane."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from overnight import app, errors
from overnight.model import data_home, times
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    import threading

    from overnight import pools
    from overnight.model.pool import (
        Autoscale,
        Grant,
        Member,
        MemberDetails,
        Past,
        PoolDetails,
        PoolEvent,
        PoolReport,
        Problem,
        Request,
    )
    from overnight.model.pool_explanation import Explanation
    from overnight.pools import autoscaler, control

EXPLAINED_EVENTS = 50
RECORDS = ("m-", "c-", "w-", "cluster-")  # ids of members, claims, requests and clusters
MAX_EVENTS = 1000
FOLLOW_SECONDS = 1.0
SETTLED_US = 30 * SECOND_US


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
        """Return the values to set by name; raise UsageError for an unknown setting."""
        from overnight.pools import pool_errors, settings

        pool_errors.check_known(self.settings, settings.NAMES)
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
class AutoscaleReport:
    """A pool, its policy, and the decision that was asked for."""

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
    """The pools of a data home, or of the database at `url`; opened on first use.

    `operations` lists the methods that a server publishes, and that `remote_operations` has from it.
    """

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
        from overnight.reservations import node_pool

        modules = (*app.discover(providers), node_pool)
        available: dict[str, pools.Provider] = {m.NAME: m.create(self._home) for m in modules}
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

    def list(self, *, archived: bool = False) -> tuple[PoolDetails, ...]:
        """List pools by name."""
        return self.plane.list(archived=archived)

    def show(self, name: str, *, recent: int = 20) -> PoolReport:
        """Show a pool with everything it holds, and its problems."""
        from overnight.model.pool import PoolReport

        details = self.plane.show(name, recent=recent)
        return PoolReport(details, find_problems(self.plane, details))

    def past(self, name: str, seconds: int = 7 * 86_400) -> Past:
        """Show the demand on a pool: requests, missed ones, and warm-up times."""
        return self.plane.past(name, seconds)

    def replenish(self, name: str) -> dict[str, int]:
        """Launch missing members now."""
        require_endpoint(self.plane)
        self.plane.check(name)
        return {"launched": self.plane.replenish(name)}

    def recycle(self, name: str) -> dict[str, int]:
        """Terminate stale members now, and retry failed terminations."""
        return {"changed": self.plane.recycle(name)}

    def drain(self, name: str, *, confirmed: bool) -> dict[str, int]:
        """Terminate unclaimed members and stop launching; claims are refused unless `confirmed`."""
        return self.plane.drain(name, confirmed=confirmed)

    def delete(self, name: str) -> dict[str, int]:
        """Delete a pool that has no members."""
        self.plane.delete(name)
        return {"deleted": 1}

    def acquire(
        self, name: str, request: Request, *, is_gone: Callable[[], bool] = lambda: False
    ) -> tuple[Grant, ...]:
        """Claim ready members, all or none."""
        from overnight.database import sqlite_files
        from overnight.pools.sql import fast_claim

        if not self._url:  # the fast path
            path = sqlite_files.default_path(self._home)
            grant = fast_claim.claim_in_file(path, name, request, times.now_us())
            if grant is not None:
                return (grant,)
        if request.cold:
            require_endpoint(self.plane)
        return self.plane.acquire(name, is_gone=is_gone, **vars(request))

    def renew(self, claim_id: str, lease_seconds: int) -> Grant:
        """Extend the lease of a claim, from now."""
        from overnight.model.pool import Grant

        claim = self.plane.renew(claim_id, lease_seconds)
        return Grant(self.plane.member(claim.member_id), claim)

    def give_back(self, claim_id: str) -> Member:
        """Return the member of a claim."""
        return self.plane.give_back(claim_id)

    def return_member(self, name: str, member_id: str) -> Member:
        """Return a claimed member of a pool."""
        return self.plane.return_member(name, member_id)

    def show_member(self, member_id: str, *, recent: int = 20) -> MemberDetails:
        """Show a member with its claims and events, also when it is gone."""
        return self.plane.show_member(member_id, recent=recent)

    def terminate(self, member_id: str, *, forget: bool = False, confirmed: bool) -> Member:
        """Terminate a member and end its claim; a claim is refused unless `confirmed`.

        With `forget` the provider is not called: the machine is known to be gone.
        """
        return self.plane.terminate(member_id, forget=forget, confirmed=confirmed)

    def explain(self, name: str) -> Explanation:
        """Explain the failure of a pool, a member, a claim or a request.

        With the end of the console where the provider has one: text of hosts is in fields of its own.
        """
        from overnight.pools import explanations, pool_errors

        try:
            report = self.show(name, recent=EXPLAINED_EVENTS)
        except pool_errors.PoolNotFoundError:
            if not name.startswith(RECORDS):
                raise
            return self.plane.explain(name)
        return explanations.explain_pool(report, self.plane.context.clock())

    def events(self, name: str = "", *, after: int = 0, recent: int = 100) -> tuple[PoolEvent, ...]:
        """List events of a pool, or of all, oldest first: decisions of the reaper, claims, failures.

        The last `recent` events; with `after`, the id of an event, the first that follow it. At most 1,000.
        """
        return self.plane.events(name, after=after, limit=min(recent, MAX_EVENTS))

    def follow(self, name: str, stop: threading.Event, recent: int = 20) -> Iterator[PoolEvent]:
        """Yield the last events, then each new one, until `stop` is set."""
        # Of events that are not settled, id and time: one whose transaction took longer may get a smaller id.
        first = self.events(name, recent=max(1, recent))
        yield from first[len(first) - recent :]
        seen = {event.id: event.at_us for event in first}
        settled = min(seen, default=1) - 1
        while not stop.wait(FOLLOW_SECONDS):
            for event in self._list_after(name, settled):
                if event.id not in seen:
                    yield event
                seen[event.id] = event.at_us
            now = times.now_us()
            # abs(): a time in the future means that the clock was set back.
            old = (number for number, at in seen.items() if abs(now - at) >= SETTLED_US)
            settled = max(old, default=settled)
            seen = {n: at for n, at in seen.items() if n > settled}

    def _list_after(self, name: str, after: int) -> Iterator[PoolEvent]:
        while page := self.events(name, after=after, recent=MAX_EVENTS):
            yield from page
            after = page[-1].id
            if len(page) < MAX_EVENTS:
                return

    def cancel(self, task: str) -> Member:
        """Cancel a launch, or give up a teardown, by the task that `show` lists.

        The machine of a launch is terminated should it still appear. A member whose teardown is given up stays an
        alert, because its machine may still run.
        """
        return self.plane.cancel(task)

    def set_cordoned(self, member_id: str, *, cordoned: bool) -> Member:
        """Hold a member for inspection, or release it again."""
        return self.plane.set_cordoned(member_id, cordoned=cordoned)

    def forget(self, host: str, *, confirmed: bool) -> dict[str, int]:
        """Give up the members on a host that is gone for good; refused unless `confirmed`."""
        return {"forgotten": self.plane.forget(host, confirmed=confirmed)}

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
            removed = self.autoscale_off(name)["removed"]
            message = "autoscale is off" if removed else "autoscale was already off"
            return AutoscaleReport(self.show(name, recent=1).details, message=message)
        details = self.show(name, recent=1).details
        if dry_run:
            if details.autoscale is None and not (given or on):
                raise errors.CannotError(
                    f"pool {details.pool.name} has no autoscale policy",
                    why="its size is set by hand",
                    todo=f"try the defaults: `overnight pool autoscale {name} --on --dry-run`",
                )
            return AutoscaleReport(details, self.outlook(name, change))
        if not given and not on:
            return AutoscaleReport(details)
        report = self.set_autoscale(name, change)
        return AutoscaleReport(report.details, message=f"autoscale is on for pool {name}")

    def outlook(self, name: str, change: AutoscaleChange) -> autoscaler.Outlook:
        """Show the decision of the autoscale policy with these changes; change nothing."""
        return self.plane.outlook(name, **change.given())

    def set_autoscale(self, name: str, change: AutoscaleChange) -> PoolReport:
        """Set the autoscale policy of a pool, or change the one it has."""
        self.plane.autoscale(name, **change.given())
        return self.show(name, recent=1)

    def autoscale_off(self, name: str) -> dict[str, int]:
        """Remove the autoscale policy of a pool and keep its size."""
        return {"removed": int(self.plane.autoscale_off(name))}


def find_problems(plane: control.ControlPlane, details: PoolDetails) -> tuple[Problem, ...]:
    """Return the problems of a pool."""
    from overnight.pools import problems

    return problems.find_problems(
        details,
        now_us=plane.context.clock(),
        reaper_us=plane.reaper_us,
        past=plane.past(details.pool.id),
        orphans=plane.orphans_left(details.pool.provider),
    )


def require_endpoint(plane: control.ControlPlane) -> None:
    """Raise unless members have an endpoint to which they can report that they are ready."""
    if not plane.endpoint:
        raise errors.CannotError(
            "members cannot be launched yet",
            why="they could not report that they are ready: no reaper has served from this database",
            todo="overnight pool serve",
        )
