"""Tokens and credentials: once, for one host, until revoked."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import secrets
import time
from typing import TYPE_CHECKING

import pytest
from fleetworld import FAR, START, S, World, bundle, credential_of, event, offer, report
from killer import KilledError, Killer

from overnight import errors
from overnight.fleet import blobs, recent, tokens
from overnight.model.control_plane import AgentIdentity, Role, Token
from overnight.model.uplink import TaskReport, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

CREDENTIAL = credential_of("db-7")
Refused = errors.UnauthenticatedError


def test_a_token_says_who_asks_until_it_expires(fleet: World) -> None:
    expires = START + 60 * S
    token = fleet.plane.tokens.create(Role.OPERATOR, name="ann", expires_us=expires, by="admin")
    who = fleet.plane.tokens.authenticate(token.text)
    assert who is not None
    assert (who.id, who.name, who.role) == (token.id, "ann", Role.OPERATOR)
    fleet.clock.forward(60)
    assert fleet.plane.tokens.authenticate(token.text) is None


def test_a_list_of_tokens_has_no_secret(fleet: World) -> None:
    token = fleet.plane.tokens.create(Role.VIEWER, name="ann", expires_us=FAR, by="admin")
    assert fleet.plane.tokens.list() == (dataclasses.replace(token, text=""),)
    assert token.text.split("_")[2] not in repr((token, fleet.plane.tokens.list()))
    assert "text" not in fleet.plane.tokens.list()[0].as_json()
    [entry] = fleet.plane.audit_log().items
    assert (entry.who, entry.action) == ("admin", "token.create")
    assert token.text.split("_")[2] not in entry.target


@pytest.mark.parametrize(
    "text",
    ["", "x", "ovn__", "ovn_000000000000_" + "0" * 64, "ovn_\0_x", "ovn_" + "9" * 5_000, "\ud800"],
)
def test_other_texts_are_nobody(fleet: World, text: str) -> None:
    fleet.token(Role.ADMIN)
    assert fleet.plane.tokens.authenticate(text) is None
    assert fleet.plane.agents.authenticate(text) is None


def test_the_secret_of_another_token_does_not_do(fleet: World) -> None:
    first, second = (fleet.token(Role.ADMIN).split("_") for _ in range(2))
    assert fleet.plane.tokens.authenticate(f"ovn_{first[1]}_{second[2]}") is None


def test_a_token_of_an_agent_is_no_token_of_a_person_and_the_reverse(fleet: World) -> None:
    assert fleet.plane.tokens.authenticate(fleet.token()) is None
    with pytest.raises(Refused):
        fleet.plane.agents.enrol(fleet.token(Role.ADMIN), CREDENTIAL, "db-7")


def test_a_revoked_token_is_refused_by_every_server_in_seconds(
    fleet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = fleet.another()
    token = fleet.plane.tokens.create(Role.VIEWER, name="ann", expires_us=FAR)
    assert other.tokens.authenticate(token.text)
    assert fleet.plane.tokens.authenticate(token.text)  # in the cache of both
    fleet.plane.tokens.revoke(token.id, by="admin", why="left")
    assert fleet.plane.tokens.authenticate(token.text) is None
    later = time.monotonic() + tokens.KNOWN_SECONDS
    monkeypatch.setattr(other.tokens._known, "_clock", lambda: later)
    assert other.tokens.authenticate(token.text) is None
    [known] = fleet.plane.tokens.list()
    assert known.revoked_us == START
    entry = fleet.plane.audit_log().items[0]
    assert (entry.who, entry.action, entry.target) == ("admin", "token.revoke", token.id)
    fleet.clock.forward(1)
    fleet.plane.tokens.revoke(token.id)
    assert fleet.plane.tokens.list() == (known,)  # with the time of the first
    assert tokens.KNOWN_SECONDS <= 10
    with pytest.raises(errors.NotFoundError):
        fleet.plane.tokens.revoke("000000000000")


@pytest.mark.parametrize(
    ("role", "host", "expires"),
    [(Role.VIEWER, "db-7", FAR), (Role.AGENT, "../x", FAR), (Role.AGENT, "", START)],
)
def test_invalid_tokens_are_not_created(fleet: World, role: Role, host: str, expires: int) -> None:
    with pytest.raises(errors.UsageError):
        fleet.plane.tokens.create(role, name="x", expires_us=expires, host=host)


def test_tokens_without_a_name_do_not_share_one(fleet: World) -> None:
    """A name owns reservations."""
    made = [fleet.plane.tokens.create(Role.OPERATOR, name="", expires_us=FAR) for _ in range(2)]
    assert [token.name for token in made] == [f"operator-{token.id}" for token in made]


def test_an_agent_enrols_once_and_may_repeat_itself(fleet: World) -> None:
    token = fleet.token()
    who = fleet.plane.agents.enrol(token, CREDENTIAL, "db-7")
    assert fleet.plane.agents.enrol(token, CREDENTIAL, "db-7") == who
    assert fleet.another().agents.authenticate(CREDENTIAL) == who
    with pytest.raises(Refused):
        fleet.plane.agents.enrol(token, credential_of("x"), "db-7")
    fleet.enrol("db-8")
    for other in ("db-8", "db-9"):  # nor does it learn the id of a known host
        with pytest.raises(Refused):
            fleet.plane.agents.enrol(token, CREDENTIAL, other)


def _expired(fleet: World) -> str:
    token = fleet.plane.tokens.create(Role.AGENT, name="x", expires_us=START + S)
    fleet.clock.forward(1)
    return token.text


def _revoked(fleet: World) -> str:
    token = fleet.plane.tokens.create(Role.AGENT, name="x", expires_us=FAR)
    fleet.plane.tokens.revoke(token.id)
    return token.text


@pytest.mark.parametrize(
    "make",
    [_expired, _revoked, lambda fleet: fleet.token(host="db-8"), lambda _: "ovn_x_y"],
    ids=["expired", "revoked", "of another host", "malformed"],
)  # fmt: skip
def test_other_tokens_enrol_nobody(fleet: World, make: Callable[[World], str]) -> None:
    with pytest.raises(Refused):
        fleet.plane.agents.enrol(make(fleet), CREDENTIAL, "db-7")
    assert fleet.plane.hosts().items == ()


@pytest.mark.parametrize("host", ["", "a b", "../x", "a\0", "é", "x" * 300])
def test_other_host_names_are_refused(fleet: World, host: str) -> None:
    with pytest.raises(errors.UsageError):
        fleet.plane.agents.enrol(fleet.token(), CREDENTIAL, host)


def test_no_host_takes_the_name_of_another(fleet: World) -> None:
    first = fleet.enrol("db-7")
    token = fleet.token()
    with pytest.raises(errors.ConflictError):
        fleet.plane.agents.enrol(token, credential_of("x"), "db-7")
    # The token was not used up.
    fleet.plane.agents.enrol(token, credential_of("y"), "db-8")
    assert fleet.another().agents.authenticate(CREDENTIAL) == first


def test_a_token_for_its_name_enrols_a_host_again(fleet: World) -> None:
    first = fleet.enrol("db-7")
    token = fleet.token(host="db-7")
    second = fleet.plane.agents.enrol(token, credential_of("new"), "db-7")
    assert second.host_id == first.host_id
    assert fleet.another().agents.authenticate(CREDENTIAL) is None
    assert fleet.another().agents.authenticate(credential_of("new")) == second
    with pytest.raises(Refused):
        fleet.plane.report(first, report())


def test_two_hosts_never_share_a_credential(fleet: World) -> None:
    fleet.enrol("db-7")
    with pytest.raises(errors.ConflictError):
        fleet.enrol("db-8", CREDENTIAL)
    other = fleet.enrol("db-9")
    with pytest.raises(errors.ConflictError):
        fleet.plane.agents.rotate(other, CREDENTIAL)


def test_both_credentials_are_valid_until_the_new_one_is_used(fleet: World) -> None:
    who = fleet.enrol()
    new = credential_of("db-7", 1)
    for _ in range(2):  # the answer may be lost
        fleet.plane.agents.rotate(who, new)
    assert fleet.another().agents.authenticate(CREDENTIAL) == who
    other = fleet.another().agents.authenticate(new)
    assert other is not None
    assert other.host_id == who.host_id
    assert fleet.another().agents.authenticate(CREDENTIAL) is None
    with pytest.raises(Refused):
        fleet.plane.report(who, report())
    who = other
    # One that was never used is replaced by the next.
    fleet.plane.agents.rotate(who, credential_of("db-7", 2))
    fleet.plane.agents.rotate(who, credential_of("db-7", 3))
    assert fleet.another().agents.authenticate(credential_of("db-7", 2)) is None
    assert fleet.another().agents.authenticate(new) == who


def test_a_revoked_agent_is_refused_and_its_data_stay(fleet: World) -> None:
    who = fleet.enrol()
    fleet.plane.report(who, report(events=(event(),)))
    assert fleet.plane.agents.authenticate(CREDENTIAL) == who
    fleet.plane.agents.revoke("db-7", by="ann", why="stolen")
    assert fleet.plane.agents.authenticate(CREDENTIAL) is None
    with pytest.raises(Refused):
        fleet.plane.agents.rotate(who, credential_of("db-7", 1))
    with pytest.raises(Refused):
        fleet.plane.tasks.report(who, "t-1", TaskReport(TaskState.DONE))
    with pytest.raises(Refused):
        fleet.plane.put_blob(who, "ab" * 32, 0, 5, b"")
    with pytest.raises(Refused):
        fleet.plane.report(who, report())
    assert len(fleet.plane.events().items) == 1
    assert fleet.plane.audit_log().items[0].why == "stolen"
    with pytest.raises(errors.NotFoundError):
        fleet.plane.agents.revoke("db-\0")


def test_a_forgotten_host_is_gone_with_its_data(fleet: World) -> None:
    who = fleet.enrol()
    fleet.plane.report(who, report(events=(event(),), labels={"zone": "a"}))
    fleet.plane.forget("db-7", by="ann", why="scrapped")
    assert fleet.plane.hosts().items == fleet.plane.events().items == ()
    with pytest.raises(Refused):
        fleet.plane.report(who, report())
    assert fleet.plane.agents.authenticate(CREDENTIAL) is None
    assert fleet.enrol() != who


def test_a_forgotten_host_leaves_no_unfinished_upload(fleet: World) -> None:
    who, other = fleet.enrol(), fleet.enrol("db-8")
    for each in (who, other):
        data = bundle(each.host)
        fleet.plane.report(each, report(windows=(offer(data),)))
        fleet.plane.put_blob(each, offer(data).sha256, 0, len(data), data[:9])
    fleet.plane.forget("db-7")
    partial = fleet.folder / blobs.PARTIAL
    assert [path.name for path in partial.iterdir()] == [other.host_id]


def test_the_credential_of_a_forgotten_host_is_refused_at_once(fleet: World) -> None:
    who = fleet.enrol()
    assert fleet.plane.agents.authenticate(CREDENTIAL) == who  # now it is in the cache
    fleet.plane.forget("db-7")
    assert fleet.plane.agents.authenticate(CREDENTIAL) is None


@pytest.mark.parametrize("same_host", [True, False])
def test_of_many_that_use_one_token_at_once_one_enrols(fleet: World, *, same_host: bool) -> None:
    planes = [fleet.plane, fleet.another()]
    token = fleet.token()

    def enrol(number: int) -> AgentIdentity | None:
        try:
            host = "db-7" if same_host else f"db-{number}"
            return planes[number % 2].agents.enrol(token, secrets.token_hex(32), host)
        except errors.CannotError:
            return None

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        enrolled = [who for who in threads.map(enrol, range(8)) if who]
    assert len(enrolled) == 1
    assert [host.name for host in fleet.plane.hosts().items] == [enrolled[0].host]


def test_of_many_that_enrol_one_name_at_once_one_does(fleet: World) -> None:
    planes = [fleet.plane, fleet.another()]
    tokens = [fleet.token() for _ in range(6)]

    def enrol(number: int) -> bool:
        try:
            planes[number % 2].agents.enrol(tokens[number], secrets.token_hex(32), "db-7")
        except errors.ConflictError:
            return False
        return True

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(enrol, range(6))) == 1


def test_a_server_killed_at_any_step_of_an_enrolment_can_be_asked_again(fleet: World) -> None:
    for at in range(20):
        token, host = fleet.token(), f"db-{at}"
        killer = Killer(at)
        try:
            fleet.another(killer).agents.enrol(token, credential_of(host), host)
            break
        except KilledError:
            who = fleet.plane.agents.enrol(token, credential_of(host), host)
            assert fleet.plane.agents.authenticate(credential_of(host)) == who
    assert "enrol: after commit" in killer.passed


def test_a_cache_forgets_and_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [0.0], []

    def find(secret: str) -> Token | None:
        asked.append(secret)
        return Token("x", Role.VIEWER, "", 0, 0) if secret != "wrong" else None

    known: recent.Recent[Token] = recent.Recent(5, lambda: now[0])
    assert [known.get(text, find) is not None for text in ("a", "a", "wrong", "wrong")] == [True, True, False, False]  # fmt: skip
    assert asked == ["a", "wrong", "wrong"]
    now[0] = 5
    known.get("a", find)
    assert len(asked) == 4
    monkeypatch.setattr(recent, "MOST", 3)
    for number in range(10):
        known.get(str(number), find)
        assert len(known._known) <= 3


def test_a_used_token_is_of_use_with_the_credential_of_its_host_alone(fleet: World) -> None:
    token = fleet.token()
    who = fleet.plane.agents.enrol(token, CREDENTIAL, "db-7")
    fleet.enrol("db-8")
    with pytest.raises(Refused):
        fleet.plane.agents.enrol(token, credential_of("db-8"), "db-8")
    fleet.plane.agents.rotate(who, credential_of("db-7", 1))
    assert fleet.plane.agents.authenticate(credential_of("db-7", 1))
    with pytest.raises(Refused):  # a credential that was replaced does not come back
        fleet.plane.agents.enrol(token, CREDENTIAL, "db-7")


@pytest.mark.parametrize(
    "credential",
    ["", "x" * 31, "x" * 129, "x" * 31 + "é"],
    ids=["empty", "short", "long", "accented"],
)
def test_a_malformed_credential_is_not_stored(fleet: World, credential: str) -> None:
    with pytest.raises(errors.UsageError):
        fleet.plane.agents.enrol(fleet.token(), credential, "db-8")
    with pytest.raises(errors.UsageError):
        fleet.plane.agents.rotate(fleet.enrol(), credential)


def test_the_audit_log_has_who_began_and_ended_a_host_and_why(fleet: World) -> None:
    token = fleet.plane.tokens.create(Role.AGENT, name="x", expires_us=FAR)
    fleet.plane.agents.enrol(token.text, CREDENTIAL, "db-7")
    fleet.plane.agents.revoke("db-7", by="ann", why="stolen")
    fleet.plane.forget("db-7", by="bob", why="scrapped")
    rows = [(row.who, row.action, row.target, row.why) for row in fleet.plane.audit_log().items]
    assert rows[:3] == [
        ("bob", "host.forget", "db-7", "scrapped"),
        ("ann", "host.revoke", "db-7", "stolen"),
        (f"token {token.id}", "host.enrol", "db-7", ""),
    ]


def test_a_token_of_an_assistant_says_so_everywhere(fleet: World) -> None:
    made = []
    for name, assistant in (("ann", False), ("claude", True)):
        made.append(
            fleet.plane.tokens.create(
                Role.OPERATOR, name=name, expires_us=FAR, assistant=assistant, by="root"
            )
        )
        fleet.clock.forward(1)
        who = fleet.plane.tokens.authenticate(made[-1].text)
        assert who is not None
        assert who.assistant == assistant
    listed = fleet.plane.tokens.list()  # the newest first
    assert [(t.name, t.assistant, t.created_by) for t in listed] == [
        ("claude", True, "root"),
        ("ann", False, "root"),
    ]
    targets = [row.target for row in fleet.plane.audit_log().items]
    assert targets == [
        f"{made[1].id} claude (operator, assistant)",
        f"{made[0].id} ann (operator)",
    ]
    with pytest.raises(errors.UsageError, match="--assistant"):
        fleet.plane.tokens.create(Role.AGENT, name="x", expires_us=FAR, assistant=True)


def test_tokens_are_removed_long_after_they_expired(fleet: World) -> None:
    expired = fleet.plane.tokens.create(Role.VIEWER, name="old", expires_us=START + 86_400 * S)
    valid = fleet.plane.tokens.create(Role.VIEWER, name="new", expires_us=FAR)
    fleet.clock.forward(400 * 86_400)
    fleet.plane._trim()
    assert {token.id for token in fleet.plane.tokens.list()} == {expired.id, valid.id}
    fleet.clock.forward(86_401)
    fleet.plane._trim()
    assert [token.id for token in fleet.plane.tokens.list()] == [valid.id]


def test_a_new_credential_leaves_those_of_other_hosts(fleet: World) -> None:
    who, other = fleet.enrol(), fleet.enrol("db-8")
    fleet.plane.agents.rotate(other, credential_of("db-8", 1))
    fleet.plane.agents.rotate(who, credential_of("db-7", 1))
    for credential in (credential_of("db-7", 1), credential_of("db-8", 1)):
        assert fleet.another().agents.authenticate(credential)
