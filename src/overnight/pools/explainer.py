"""Read what is recorded about a member, a claim or a request, and the console of its machine; explain it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from overnight import pools
from overnight.pools import explanations, maintenance, pool_errors
from overnight.pools.sql import (
    claim_rows,
    cluster_rows,
    enrolment_rows,
    event_rows,
    pool_rows,
    shared_values,
)

if TYPE_CHECKING:
    from overnight.model.pool import MemberDetails
    from overnight.model.pool_explanation import Explanation
    from overnight.pools import admin, context

EVENTS = 200
CONSOLE_LINES, LINE_LENGTH = 40, 400


def last_lines(text: str) -> tuple[str, ...]:
    """Return the end of a console."""
    lines = [line.rstrip()[:LINE_LENGTH] for line in text.splitlines()]
    return tuple(filter(None, lines))[-CONSOLE_LINES:]


class Explainer:
    def __init__(self, control: context.Context, administration: admin.PoolAdmin) -> None:
        self._control = control
        self._database = control.database
        self._admin = administration

    def explain(self, name: str) -> Explanation:
        """Explain a member, a claim, a request or a cluster that has ended, by its id."""
        if name.startswith("c-"):
            return self._explain_claim(name)
        if name.startswith("w-"):
            return self._explain_request(name, pool_errors.RequestNotFoundError(name))
        if name.startswith("cluster-"):  # it has ended: its pool is deleted
            with self._database.read() as connection:
                pool, cluster = cluster_rows.read(connection, name)
                events = event_rows.list_recent(connection, pool.id, EVENTS)
            return explanations.explain_cluster(cluster, events)
        return self._explain_member(name)

    def _explain_member(self, member_id: str) -> Explanation:
        details = self._admin.show_member(member_id, recent=EVENTS)
        now = self._control.clock()
        with self._database.read() as connection:
            expired = enrolment_rows.is_expired(connection, member_id, now)
            seen = shared_values.read_seen(connection)
        explained = explanations.explain_member(details, now, token_expired=expired, reaper_us=seen)
        return self._with_console(explained, details)

    def _explain_claim(self, claim_id: str) -> Explanation:
        try:
            with self._database.read() as connection:
                claim = claim_rows.find(connection, claim_id)
        except pool_errors.ClaimNotFoundError as missing:  # one that got no member has no row
            return self._explain_request(claim_id, missing)
        details = self._admin.show_member(claim.member_id, recent=EVENTS)
        return self._with_console(explanations.explain_claim(claim, details), details)

    def _explain_request(self, name: str, missing: pool_errors.PoolError) -> Explanation:
        with self._database.read() as connection:
            events = event_rows.list_of_request(connection, name, EVENTS)
            if not events:
                raise missing
            pool = pool_rows.find(connection, events[-1].pool_id, deleted=True)
        for event in events:
            if event.kind == event_rows.REFUSED and event.claim_id == name:
                return explanations.explain_miss(event, pool.name, events)
        return explanations.explain_request(name, pool.name, events)

    def _with_console(self, explained: Explanation, details: MemberDetails) -> Explanation:
        """Add the console: that of the machine while it exists, else what was kept when it failed."""
        member = details.member
        kept = (e.detail for e in details.events if e.kind == explanations.CONSOLE)
        text, missing = next(kept, ""), "its machine is gone, and no console was kept"
        if member.machine_id is not None and member.gone_us is None:
            text, missing = self._read_console(details)
        elif member.machine_id is None:
            missing = "it never had a machine"
        lines = last_lines(text)
        return dataclasses.replace(
            explained, console=lines, console_missing="" if lines else missing
        )

    def _read_console(self, details: MemberDetails) -> tuple[str, str]:
        member = details.member
        if not self._control.reaches(member):
            return "", f"only a server on {member.host} can read it"
        client = self._control.provider(member.provider)
        try:
            text = client.console(str(member.machine_id), maintenance.CONSOLE_SECONDS)
        except pools.ProviderError as error:
            return "", f"the provider failed: {error.reason}"
        if text is None:
            return "", f"provider {member.provider} has none"
        return text, "it is empty"
