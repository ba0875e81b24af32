"""The answer of `overnight compare` for one kind of event, in one sentence."""

from __future__ import annotations

import dataclasses

from overnight.model import times
from overnight.model.text import percent, plural, rounded
from overnight.queries import rates

Outcome = rates.Outcome
DAY_H, MANY = 24.0, 1000.0
# Of two times, of two groups of hosts.
HEADS = {
    Outcome.FELL: ("the fix worked", "lower rate"),
    Outcome.ROSE: ("it got worse", "higher rate"),
    Outcome.UNCHANGED: ("no large effect", "no large difference"),
    Outcome.CANNOT_TELL: ("cannot tell yet", "cannot tell"),
}


@dataclasses.dataclass(frozen=True)
class Wording:
    """What is compared, and how rates are shown."""

    per: str = ""  # the kind of event that is the exposure; "" for host-hours
    groups: tuple[str, str] | None = None  # two groups of hosts; None: before and after
    alpha: float = rates.ALPHA  # of the intervals

    @property
    def unit(self) -> str:
        return f"per 1,000 {self.per}" if self.per else "per host-day"

    @property
    def interval_name(self) -> str:
        return f"{100 - 100 * self.alpha:.3g} % interval"

    def interval(self, compared: rates.Comparison) -> str:
        high = "∞" if compared.ratio_high is None else rounded(compared.ratio_high)
        return f"{rounded(compared.ratio_low)} to {high}"

    def rate(self, rate: float) -> str:
        return rounded(rate * (MANY if self.per else DAY_H))

    def exposure(self, exposure: float, hosts: int) -> str:
        """Format an exposure: `238 host-hours on 8 hosts`, `3,850 job.started`."""
        unit = self.per or f"host-hours on {plural(hosts, 'host')}"
        return f"{rounded(exposure)} {unit}"

    def explain(self, compared: rates.Comparison, hosts: int) -> str:
        """Return the answer; `hosts` are those recorded on the second side."""
        outcome = compared.outcome
        if outcome is Outcome.NO_EVENTS:
            most = self.rate(compared.after.high)
            return f"no event on either side; the rate is at most {most} {self.unit}"
        before, after = (self.rate(side.rate) for side in (compared.before, compared.after))
        first, second = (f"for {name}" for name in self.groups) if self.groups else ("before", "after")  # fmt: skip
        ratio = "" if compared.ratio is None else f"ratio {rounded(compared.ratio)}, "
        head = HEADS[outcome][self.groups is not None]
        text = f"{head} ({after} {self.unit} {second}, {before} {first}; {ratio}{self.interval_name} {self.interval(compared)})"
        return text + (self._next_step(compared, hosts) if outcome is Outcome.CANNOT_TELL else "")

    def _next_step(self, compared: rates.Comparison, hosts: int) -> str:
        if compared.is_chance:
            return (
                f": hosts assigned to the groups at random differ as much in {percent(compared.p_hosts)} of cases; "
                "compare more hosts, or the same hosts before and after"
            )
        if self.groups:
            return ": compare a longer time or more hosts"
        if compared.wait is None and compared.before.events:
            return ": no host that was recorded on both sides had an event before"
        if compared.wait is None:
            return ": there was no event before to compare with"
        more = f"for {self.exposure(compared.wait, hosts)}"
        if not self.per:
            long = times.format_duration(compared.wait * 3600 / max(1, hosts))
            more = f"{long} ({self.exposure(compared.wait, hosts)})"
        sure = f"{100 - 100 * self.alpha:.3g} % sure"
        return f": wait {more} without an event to be {sure} that the rate has halved"
