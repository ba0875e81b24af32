"""What assistants ask for and people confirm: single use, short-lived, bound to caller, arguments and effect."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.fleet import context
from overnight.fleet.sql import audit_rows, confirmation_rows
from overnight.model.confirmation import (
    Confirmation,
    ConfirmationNeededError,
    ConfirmationState,
    Effect,
)
from overnight.model.text import printable
from overnight.model.times import MINUTE_US

if TYPE_CHECKING:
    from overnight.database import engine
    from overnight.model.control_plane import Change, Principal, Role

PENDING_US = 10 * MINUTE_US  # until a person must have decided
CONFIRMED_US = 5 * MINUTE_US  # until the call must have been repeated
MOST = 20  # open requests of a caller
LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"  # none looks like another
State = ConfirmationState


class TooManyRequestsError(errors.QuotaError):
    """Too many requests of a caller wait for people."""

    retry_seconds = PENDING_US // 1_000_000

    def __init__(self, caller: str) -> None:
        super().__init__(
            f"{caller} has {MOST} requests that wait for people",
            why="each of them is shown to people, who must be able to read them",
            todo="wait until they are decided or have expired",
        )


class Confirmations:
    def __init__(self, control: context.Context) -> None:
        self._control = control

    def require(
        self, by: Principal, action: str, role: Role, arguments: Mapping[str, Any], effect: Effect, *,
        only_ask: bool = False,
    ) -> None:  # fmt: skip
        """Return if a person has confirmed this call, once; else raise ConfirmationNeededError.

        A request whose effect has changed since a person could see it is void. With `only_ask` the confirmation is not
        used up, and the error is raised in any case.
        """
        now, subject, seen = self._control.clock(), _digest(action, arguments), _digest(effect)
        pending = Confirmation(
            id=f"q-{secrets.token_hex(6)}", code="".join(secrets.choice(LETTERS) for _ in range(8)),
            action=action, arguments=arguments, caller=by.id, caller_name=by.name, role=role, effect=effect,
            state=State.PENDING, made_us=now, expires_us=now + PENDING_US,
        )  # fmt: skip
        why = ""
        with self._control.database.write("confirmation") as connection:
            found = confirmation_rows.find_of_call(connection, by.id, subject, now)
            if found is not None and found[0].state is State.DECLINED:
                raise _declined(found[0])
            if declined := confirmation_rows.find_declined(connection, pending, now):
                raise _declined(declined)
            if found is not None and found[1] != seen:
                self._change(connection, found[0], State.VOID, by, now)
                found, why = None, "the state has changed since the first request, which is void"
            if found is None:
                if len(confirmation_rows.list_open(connection, now, by.id)) >= MOST:
                    raise TooManyRequestsError(by.name)
                confirmation_rows.insert(connection, pending, subject, seen)
                self._note(connection, by, pending, "request", now)
            elif found[0].state is State.CONFIRMED and not only_ask:
                self._change(connection, found[0], State.USED, by, now)
                return
            else:
                pending = found[0]
        raise ConfirmationNeededError(pending, why)

    def list(self, by: Principal) -> tuple[Confirmation, ...]:
        """Return the open requests, the newest first; with the code for those who may confirm it."""
        _check_person(by)
        now = self._control.clock()
        with self._control.database.read() as connection:
            rows = confirmation_rows.list_open(connection, now)
        return tuple(row if _refusal(row, by) is None else _without_code(row) for row in rows)

    def show(self, confirmation_id: str, by: Principal) -> Confirmation:
        """Return a request without its code; an assistant sees its own ones only."""
        with self._control.database.read() as connection:
            found = confirmation_rows.find(connection, printable(confirmation_id))
        if found is None or (by.assistant and found.caller != by.id):
            context.refuse_unknown("confirmation", confirmation_id, "overnight confirmations")
        return _without_code(found)

    def confirm(self, code: str, by: Principal) -> Confirmation:
        """Let the call be made once; refused for its own caller, for assistants and for other roles."""
        return self._decide(code, by, State.CONFIRMED)

    def decline(self, code: str, by: Principal) -> Confirmation:
        return self._decide(code, by, State.DECLINED)

    def _decide(self, code: str, by: Principal, to: ConfirmationState) -> Confirmation:
        _check_person(by)
        now = self._control.clock()
        wanted = printable(code).upper().replace("-", "").replace(" ", "")
        with self._control.database.write("confirmation") as connection:
            found = confirmation_rows.find_by_code(connection, wanted, now)
            if found is None:
                raise errors.NotFoundError(
                    "no request waits with this code",
                    why="it is decided, expired or void, or the code is mistyped",
                    todo="overnight confirmations",
                )
            if refusal := _refusal(found, by):
                raise refusal
            decided = dataclasses.replace(
                found, state=to, decided_by=by.title, decided_us=now, expires_us=now + CONFIRMED_US
            )
            self._change(connection, found, to, by, now, expires_us=decided.expires_us)
        return _without_code(decided)

    def _change(
        self,
        connection: engine.Connection,
        found: Confirmation,
        to: ConfirmationState,
        by: Principal,
        now: int,
        **values: object,
    ) -> None:
        """Change a locked request, and note it in the audit log."""
        if to in (State.CONFIRMED, State.DECLINED):
            values |= {"decided_by": by.title, "decided_us": now}
        confirmation_rows.change(connection, found.id, found.state, state=to, **values)
        self._note(connection, by, found, to, now)

    def audit(
        self, who: str, action: str, target: str, why: str, change: Change | None = None
    ) -> None:
        """Add to the audit log what no operation of the fleet does: those that change something do so themselves."""
        with self._control.database.write("audit") as connection:
            audit_rows.add(connection, self._control.clock(), who, action, target, why, change)

    def list_changes(self, by: Principal, actions: Sequence[str]) -> Sequence[tuple[str, Change]]:
        """Return what assistants of this name did, as the audit log has it."""
        with self._control.database.read() as connection:
            return audit_rows.list_changes(connection, by.name, actions)

    def _note(
        self, connection: engine.Connection, by: Principal, of: Confirmation, what: str, now: int
    ) -> None:
        audit_rows.add(connection, now, by.title, f"confirmation.{what}", of.id, of.effect.summary)


def _without_code(found: Confirmation) -> Confirmation:
    return dataclasses.replace(found, code="")


def _refusal(found: Confirmation, by: Principal) -> errors.NotAllowedError | None:
    """Return why somebody may not decide a request."""
    if found.caller == by.id:
        return errors.NotAllowedError(
            "a caller cannot confirm its own request",
            why=f"{found.id} was made with this credential",
            todo="use another credential: --token-file FILE",
        )
    if not by.role.allows(found.role):
        return errors.NotAllowedError(
            f"the role {found.role} is required",
            why=f"token {by.name} has the role {by.role}",
            todo="use a token with that role",
        )
    return None


def _declined(found: Confirmation) -> errors.NotAllowedError:
    return errors.NotAllowedError(
        f"declined: {found.effect.summary}",
        why=f"{found.decided_by} declined {found.id}",
        todo="do not repeat the call; ask that person",
    )


def _check_person(by: Principal) -> None:
    if by.assistant:
        raise errors.NotAllowedError(
            "an assistant cannot decide requests, or read their codes",
            why=f"{by.name} is the credential of an assistant",
            todo="a person runs `overnight confirmations` with a credential of their own",
        )


def _digest(*parts: object) -> str:
    text = json.dumps(parts, sort_keys=True, default=vars)
    return hashlib.sha256(text.encode()).hexdigest()
