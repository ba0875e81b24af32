"""Actors: where they run, and how they are shown."""

from __future__ import annotations

import pytest

from overnight.model.actor import Actor

ID = "3fa9b2c1d0e4" + "0" * 52
POD = "/kubepods/besteffort/pod0f3a1b2c-1111-2222-3333-444455556666"


@pytest.mark.parametrize(
    ("unit", "pod", "container"),
    [
        ("kube-system/agent-x7", ("kube-system", "agent-x7"), None),
        ("redis.service", None, None),
        ("", None, None),
        (f"{POD}/{ID}", None, "3fa9b2c1d0e4"),
        (f"/docker/{ID}", None, "3fa9b2c1d0e4"),
        (f"/docker/{ID[:-1]}", None, None),
        ("/user.slice/build", None, None),
    ],
)
def test_the_place_of_an_actor_is_a_pod_a_container_or_neither(
    unit: str, pod: tuple[str, str] | None, container: str | None
) -> None:
    actor = Actor("etl.py (python3)", unit)
    assert (actor.pod, actor.container) == (pod, container)


def test_a_long_path_is_shortened_where_it_is_shown() -> None:
    shown = {
        f"{POD}/{ID}": "etl (/kubepods/…/3fa9b2c1d0e4)",
        f"/docker/{ID}": "etl (/docker/3fa9b2c1d0e4)",
        "/user.slice/build": "etl (/user.slice/build)",
        "ml/resnet-0": "etl (ml/resnet-0)",
    }
    assert {unit: str(Actor("etl", unit)) for unit in shown} == shown
    assert (
        str(Actor("etl.py (python3)", f"{POD}/{ID}"))
        == "etl.py (python3, /kubepods/…/3fa9b2c1d0e4)"
    )
