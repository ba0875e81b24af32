"""How a member's agent enrols and reports: a token once, then a credential; phases; heartbeats.

Only hashes are stored. The agent proposes its credential, so that it can repeat a request whose answer was
lost, with the same token and the same credential, and nobody else can.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from overnight.database import column_types
from overnight.model.pool import CAPACITY, Member, MemberState, Pool
from overnight.pools import decisions, maintenance, pool_errors
from overnight.pools.sql import enrolment_rows, event_rows, member_rows, pool_rows

if TYPE_CHECKING:
    from overnight.database import engine
    from overnight.pools import context

SECRET = re.compile(r"[0-9a-f]{64}")  # 32 bytes
REASON = re.compile(r"[a-z][a-z0-9_]{0,63}")
State = MemberState


class Enrolment:
    def __init__(self, control: context.Context) -> None:
        self._control = control
        self._database = control.database

    def enrol(self, token: str, credential: str) -> str:
        """Exchange a bootstrap token for a credential, once; return the member's id."""
        refuse = pool_errors.EnrolmentRefusedError
        if not SECRET.fullmatch(token) or not SECRET.fullmatch(credential):
            raise refuse("bootstrap_token_unknown", "the bootstrap token is malformed")
        now = self._control.clock()
        with self._database.write("enrol") as connection:
            # The pool first, as in every transaction: `delete` locks the pool and then its enrolments.
            pool = pool_rows.lock_of_token(connection, token)
            enrolment = enrolment_rows.find_by_token(connection, token)
            if pool is None or enrolment is None:
                raise refuse(
                    "bootstrap_token_unknown",
                    "the bootstrap token was never issued, or its member is forgotten",
                )
            member = member_rows.find(connection, enrolment.member_id)
            if enrolment.credential_hash == column_types.hash_secret(credential):
                return member.id  # its first answer was lost
            if enrolment.used_us is not None:
                raise refuse(
                    "bootstrap_token_used",
                    f"the bootstrap token of {member.id} has already been used",
                )
            if member.state is not State.WARMING or member.gone_us is not None:
                raise refuse("member_not_warming", f"{member.id} is no longer warming")
            expired = now >= enrolment.expires_us
            if expired:
                reason = "bootstrap_token_expired"
                _fail(connection, pool, member.id, reason, "enrolled too late", now)
            elif enrolment_rows.use_token(connection, member.id, credential, now):
                member_rows.set_beat(connection, member.id, "enrolled", now)
                event_rows.add(connection, "member_enrolled", now, pool=pool, member_id=member.id)
            else:
                raise refuse(
                    "bootstrap_token_used",
                    f"the bootstrap token of {member.id} was used at the same moment",
                )
        if expired:  # raised only now, so that the failure is committed
            raise refuse(reason, f"the bootstrap token of {member.id} has expired")
        return member.id

    def beat(self, credential: str) -> dict[str, Any]:
        """Record a heartbeat; the answer has the member's state, so that the agent can exit with it."""
        member = self._by_credential(credential)
        now = self._control.clock()
        if member.gone_us is None:
            with self._database.write("beat") as connection:
                member_rows.set_beat(connection, member.id, member.state, now)
        return _answer(member)

    def phase(
        self, credential: str, phase: str, reason: str = "", detail: str = ""
    ) -> dict[str, Any]:
        """Record a phase: `ready`, `failed` with a one-word reason unless claimed, or any step before."""
        if not REASON.fullmatch(phase) or (reason and not REASON.fullmatch(reason)):
            raise pool_errors.BadKnobError(
                "phase", f"{phase} {reason}", "lower-case words such as module_pull_failed"
            )
        member = self._by_credential(credential)
        now = self._control.clock()
        with self._database.write("phase") as connection:
            pool = pool_rows.lock(connection, member.pool_id, deleted=True)
            member = member_rows.find(connection, member.id)
            if member.gone_us is None:
                member_rows.set_beat(connection, member.id, phase, now)
            if phase == "ready":
                _set_ready(connection, pool, member, now)
            elif phase == "failed":
                why = reason or "bootstrap_failed"
                _fail(connection, pool, member.id, why, detail, now)
        self._control.notifier.notify()
        return _answer(self._by_credential(credential))

    def _by_credential(self, credential: str) -> Member:
        with self._database.read() as connection:
            member_id = enrolment_rows.find_member_id(connection, credential)
            if member_id is None:
                raise pool_errors.EnrolmentRefusedError(
                    "credential_unknown", "no member has that credential"
                )
            return member_rows.find(connection, member_id)


def _set_ready(connection: engine.Connection, pool: Pool, member: Member, now: int) -> None:
    if member.state is not State.WARMING or member.gone_us is not None:
        return  # repeated, or no longer wanted
    if member.machine_id is None:
        # Ready before its launch returned: its address is not known yet.
        raise pool_errors.TooEarlyError(
            f"{member.id} is ready before its launch was recorded",
            why="the provider has not answered yet",
            todo="repeat the request in a moment",
        )
    member_rows.move(
        connection, pool, member.id,
        to=State.READY, before=(State.WARMING,), reason="phase_ready", now_us=now,
        took_us=now - member.warming_started_us,
    )  # fmt: skip
    if pool.failures or pool.breaker_opened_us is not None:
        pool_rows.save(connection, decisions.after_success(pool))
        if pool.breaker_opened_us is not None:
            event_rows.add(
                connection, "breaker_closed", now, pool=pool, member_id=member.id,
                reason="member_ready",
            )  # fmt: skip


def _fail(
    connection: engine.Connection, pool: Pool, member_id: str, reason: str, detail: str, now: int
) -> None:
    if member_rows.move(
        connection, pool, member_id, to=State.ERRORED, before=CAPACITY,
        reason=reason, now_us=now, detail=detail,
    ):  # fmt: skip
        maintenance.count_failure(connection, pool, reason, now)


def _answer(member: Member) -> dict[str, Any]:
    return {"member_id": member.id, "state": member.state, "gone": member.gone_us is not None}
