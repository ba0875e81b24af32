"""Pool commands that affect the claims of others ask first; a member is returned by claim, or by pool and member."""

from __future__ import annotations

from typing import TYPE_CHECKING

import poolprovider
import poolworld
import pytest

from overnight.app import pools
from overnight.interfaces import cli

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator


@pytest.fixture
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[poolworld.World]:
    """A pool whose only member is claimed by job-17."""
    new_world = poolworld.World(f"sqlite:///{tmp_path / 'pools.db'}")
    monkeypatch.setattr(pools.Pools, "plane", new_world.plane)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    new_world.pool(target=1, max_size=1)
    new_world.fill()
    new_world.plane.acquire("ci", acquired_by="job-17")
    yield new_world
    new_world.close()


def run(*words: str) -> int:
    return cli.main(["pool", *words])


def test_terminating_a_claimed_member_asks(
    world: poolworld.World, capsys: pytest.CaptureFixture[str]
) -> None:
    [member] = world.members()
    assert run("terminate", member.id) == 2
    error = capsys.readouterr().err
    assert "claimed by job-17" in error
    assert "--yes" in error
    assert world.members() == [member]
    assert run("terminate", member.id, "--yes") == 0
    assert world.members() == []
    world.fill()
    [unclaimed] = world.members()
    assert run("terminate", unclaimed.id) == 0


def test_draining_a_pool_with_claims_asks(
    world: poolworld.World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("drain", "ci") == 2
    assert "pool ci has 1 claimed member" in capsys.readouterr().err
    assert world.plane.show("ci").pool.refills
    assert run("drain", "ci", "--yes") == 0
    assert run("drain", "ci") == 0  # already draining: nothing changes
    assert world.plane.show("ci").counts.claimed == 1


def test_members_on_another_host_are_left_to_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alpha, beta = (
        poolworld.World(f"sqlite:///{tmp_path / 'pools.db'}", provider=poolprovider.OnHost(name))
        for name in ("alpha", "beta")
    )
    alpha.pool(target=2)
    alpha.fill()
    [grant] = alpha.plane.acquire("ci")
    monkeypatch.setattr(pools.Pools, "plane", beta.plane)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert run("return", grant.claim.id) == 0
    waits = f"{grant.member.id} is draining; the reaper on alpha terminates it\n"
    assert capsys.readouterr().out == waits
    run("show", "ci")
    run("member", grant.member.id)
    assert capsys.readouterr().out.count(f"{grant.member.address} on alpha") == 2
    assert run("forget", "alpha") == 2
    assert "alpha has 2 members, 0 claimed" in capsys.readouterr().err
    assert len(alpha.members()) == 2
    assert run("forget", "alpha", "--yes") == 0
    assert capsys.readouterr().out == "2 forgotten\n"
    assert run("forget", "alpha", "--yes") == 2
    alpha.close()
    beta.close()


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 0), ("n\n", 130, 1)])
def test_the_terminal_is_asked(
    world: poolworld.World, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, left: int
) -> None:
    [member] = world.members()
    monkeypatch.setattr("sys.stdin", _Terminal(answer))
    assert run("terminate", member.id) == code
    assert len(world.members()) == left


class _Terminal:
    """Standard input of somebody who answers."""

    def __init__(self, answer: str) -> None:
        self._answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self._answer


def test_a_member_is_returned_by_pool_and_member(
    world: poolworld.World, capsys: pytest.CaptureFixture[str]
) -> None:
    [member] = world.members()
    assert run("return", "ci", member.id) == 0
    assert capsys.readouterr().out == f"{member.id} is gone\n"
    assert world.plane.show_member(member.id).claims[0].release_reason == "returned"
