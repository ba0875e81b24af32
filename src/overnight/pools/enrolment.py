"""How a machine joins, and how its agent is heard: token once, then a credential; phases; heartbeats.

Only hashes are stored. The agent proposes its credential, so that an answer that is lost on the way can
be asked for again with the same token and the same credential, and by nobody else.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from overnight.model.pool import Member, MemberState, Pool
from overnight.pools import decisions, maintenance, pool_errors
from overnight.pools.sql import records, schema

if TYPE_CHECKING:
    from overnight.pools import context

__all__ = ["Enrolment"]

SECRET = re.compile(r"[0-9a-f]{64}")  # 32 bytes
REASON = re.compile(r"[a-z][a-z0-9_]{0,63}")
State = MemberState
enrolments = schema.enrolments


def hashed(secret: str) -> str:
    """What is stored of a secret of 32 random bytes."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Enrolment:
    """What a member's agent may ask of the control plane."""

    def __init__(self, control: context.Context) -> None:
        self._control = control
        self._database = control.database

    def enrol(self, token: str, credential: str) -> str:
        """Exchange a bootstrap token for a credential, once; the member's id."""
        if not SECRET.fullmatch(token) or not SECRET.fullmatch(credential):
            raise pool_errors.EnrolmentRefusedError(
                "bootstrap_token_unknown", "that is no bootstrap token"
            )
        now = self._control.clock()
        refused = None
        with self._database.write("enrol") as connection:
            member, row = self._by_token(connection, token)
            pool = records.lock_pool(connection, member.pool_id)
            if row["credential_hash"] == hashed(credential):
                return member.id  # the answer was lost; it is the same machine
            if row["used_us"] is not None:
                raise pool_errors.EnrolmentRefusedError(
                    "bootstrap_token_used", f"the token of {member.id} was used before"
                )
            if member.state is not State.WARMING or member.gone_us is not None:
                raise pool_errors.EnrolmentRefusedError(
                    "member_not_warming", f"{member.id} is no longer waited for"
                )
            if now >= int(row["expires_us"]):
                refused = self._expired(connection, pool, member, now)
            else:
                self._use(connection, pool, member, credential, now)
        if refused is not None:
            raise refused
        return member.id

    def _by_token(self, connection: sa.Connection, token: str) -> tuple[Member, sa.RowMapping]:
        found = sa.select(enrolments).where(enrolments.c.token_hash == hashed(token))
        row = connection.execute(found.with_for_update()).mappings().first()
        if row is None:
            raise pool_errors.EnrolmentRefusedError(
                "bootstrap_token_unknown", "that token was never issued, or its member is forgotten"
            )
        return records.find_member(connection, str(row["member_id"])), row

    def _use(
        self,
        connection: sa.Connection,
        pool: Pool,
        member: Member,
        credential: str,
        now: int,
    ) -> None:
        done = connection.execute(
            sa.update(enrolments)
            .where(enrolments.c.member_id == member.id, enrolments.c.used_us.is_(None))
            .values(used_us=now, credential_hash=hashed(credential))
        )
        if done.rowcount != 1:
            raise pool_errors.EnrolmentRefusedError(
                "bootstrap_token_used", f"the token of {member.id} was used at the same moment"
            )
        records.set_beat(connection, member.id, "enrolled", now)
        records.add_event(connection, "member_enrolled", now, pool=pool, member_id=member.id)

    def _expired(
        self, connection: sa.Connection, pool: Pool, member: Member, now: int
    ) -> pool_errors.EnrolmentRefusedError:
        reason = "bootstrap_token_expired"
        self._fail(connection, pool, member.id, reason, "it came too late", now)
        return pool_errors.EnrolmentRefusedError(reason, f"the token of {member.id} has expired")

    def beat(self, credential: str) -> dict[str, Any]:
        """A heartbeat; the answer says what the member is, so that an agent can end with it."""
        member = self._by_credential(credential)
        now = self._control.clock()
        if member.gone_us is None:
            with self._database.write("beat") as connection:
                records.set_beat(connection, member.id, member.state, now)
        return {"member_id": member.id, "state": member.state, "gone": member.gone_us is not None}

    def phase(self, credential: str, phase: str, reason: str = "") -> dict[str, Any]:
        """`ready`, `failed` with a reason of one word, or a step on the way."""
        if not REASON.fullmatch(phase) or (reason and not REASON.fullmatch(reason)):
            raise pool_errors.BadKnobError(
                "phase", f"{phase} {reason}", "words like module_pull_failed"
            )
        member = self._by_credential(credential)
        now = self._control.clock()
        with self._database.write("phase") as connection:
            pool = records.lock_pool(connection, member.pool_id)
            member = records.find_member(connection, member.id)
            if member.gone_us is None:
                records.set_beat(connection, member.id, phase, now)
            if phase == "ready":
                self._ready(connection, pool, member, now)
            elif phase == "failed" and member.state is State.WARMING:
                self._fail(connection, pool, member.id, reason or "bootstrap_failed", "", now)
        self._control.notifier.notify()
        return self.standing(credential)

    def standing(self, credential: str) -> dict[str, Any]:
        """What the member of a credential is now."""
        member = self._by_credential(credential)
        return {"member_id": member.id, "state": member.state, "gone": member.gone_us is not None}

    def _ready(self, connection: sa.Connection, pool: Pool, member: Member, now: int) -> None:
        if member.state is not State.WARMING or member.gone_us is not None:
            return  # said before, or no longer wanted
        if member.machine_id is None:
            # Quicker than its own launch: nobody could be told its address yet.
            raise pool_errors.TooEarlyError(
                f"{member.id} is ready before its launch was written down",
                why="the provider has not answered yet",
                todo="ask again in a moment",
            )
        records.move(
            connection, pool, member.id,
            to=State.READY, before=(State.WARMING,), reason="phase_ready", now_us=now,
        )  # fmt: skip
        if pool.failures or pool.breaker_opened_us is not None:
            changed, closed = decisions.after_success(pool)
            records.save_pool(connection, changed)
            if closed:
                records.add_event(
                    connection, "breaker_closed", now, pool=pool, member_id=member.id,
                    reason="member_ready",
                )  # fmt: skip

    def _fail(
        self,
        connection: sa.Connection,
        pool: Pool,
        member_id: str,
        reason: str,
        detail: str,
        now: int,
    ) -> None:
        moved = records.move(
            connection, pool, member_id, to=State.ERRORED, before=(State.WARMING,),
            reason=reason, now_us=now, detail=detail,
        )  # fmt: skip
        if moved:
            maintenance.apply_failure(connection, pool, reason, now)

    def _by_credential(self, credential: str) -> Member:
        found = sa.select(enrolments.c.member_id).where(
            enrolments.c.credential_hash == hashed(credential)
        )
        with self._database.read() as connection:
            member_id = connection.execute(found).scalar()
            if member_id is None:
                raise pool_errors.EnrolmentRefusedError(
                    "credential_unknown", "no member has that credential"
                )
            return records.find_member(connection, str(member_id))
