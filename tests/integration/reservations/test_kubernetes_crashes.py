"""Marks on nodes of a real control plane against other writers, and against a reserver that is killed anywhere."""

from __future__ import annotations

import dataclasses
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import kube_reservations as site
import nodes
import pytest

from overnight import kubernetes_api, reservations
from overnight.reservations.providers import _kubernetes_marks as marks

pytestmark = pytest.mark.needs_kubernetes
HOST = "node-x"
SETUP = reservations.AgentSetup(server="http://127.0.0.1:9", token="one-use")
Patch = dict[str, Any]


class Killed(BaseException):
    """In place of kill -9: nothing catches it."""


@pytest.fixture(scope="module")
def place(kubernetes_site: site.Site) -> Iterator[site.Site]:
    with kubernetes_site.with_nodes(node_x={}) as place:
        yield place


class Others:
    """Other writers of a node, as kubectl, controllers and autoscalers are; knows what must be there."""

    def __init__(self, place: site.Site, chance: random.Random) -> None:
        self.place = place
        self.chance = chance
        self.expected = place.foreign(HOST)

    def write(self) -> None:
        name = f"others.example/k{self.chance.randrange(4)}"
        kind = self.chance.choice(["labels", "annotations", "taint", "taint", "autoscaler"])
        value: str | None = self.chance.choice([None, "v1", "v2"])
        if kind == "taint":
            self._taint(name, value)
            return
        if kind == "autoscaler":
            kind, name = "annotations", self.chance.choice(marks.AUTOSCALERS)
            value = "false" if value else None
        self.place.admin.patch(kubernetes_api.NODES, HOST, {"metadata": {kind: {name: value}}})
        self.expected[kind].pop(name, None)
        if value is not None:
            self.expected[kind][name] = value

    def _taint(self, name: str, value: str | None) -> None:
        """Write the whole list: with the version that was read, or, like `kubectl taint`, with any."""
        added = [] if value is None else [{"key": name, "value": value, "effect": "NoSchedule"}]

        def change(node: Patch) -> Patch:
            kept = [taint for taint in marks.taints_of(node) if taint["key"] != name]
            return {"spec": {"taints": [*kept, *added]}}

        if self.chance.random() < 0.5:
            self.place.admin.edit(kubernetes_api.NODES, HOST, change)
        else:
            patch = change(self.place.node(HOST))
            time.sleep(self.chance.uniform(0, 0.004))
            self.place.admin.patch(kubernetes_api.NODES, HOST, patch)
        taints = [taint for taint in self.expected["taints"] if taint[0] != name]
        self.expected["taints"] = sorted(
            [*taints, *((t["key"], t["value"], t["effect"]) for t in added)]
        )

    def check(self) -> None:
        """Compare; an annotation for an autoscaler that is not theirs may be ours."""
        found = self.place.foreign(HOST)
        for name in marks.AUTOSCALERS:
            if name not in self.expected["annotations"]:
                assert found["annotations"].pop(name, "true") == "true"
        assert found == self.expected


def interleave(place: site.Site, seed: int) -> None:
    chance = random.Random(seed)
    others = Others(place, chance)
    lease = site.make_lease()
    order = dataclasses.replace(place.order, no_execute=chance.random() < 0.5)
    later = dataclasses.replace(lease, until_us=lease.until_us + 1)
    with place.account() as own:
        calls: list[Callable[[], object]] = [
            lambda: own.claim(HOST, order, lease),
            lambda: own.mark(HOST, order, lease),
            lambda: own.empty(HOST, order, lease, print),
            lambda: own.renew(HOST, order, later),
            lambda: own.mark(HOST, order, lease),
            lambda: own.renew(HOST, order, lease),
            lambda: own.release(HOST, order, lease.id),
        ]
        failures: list[BaseException] = []
        pauses = random.Random(seed + 1)

        def reserve() -> None:
            try:
                for call in calls[: pauses.randint(2, len(calls))]:
                    call()
                    time.sleep(pauses.uniform(0, 0.006))
            except BaseException as error:  # reported by the other thread
                failures.append(error)

        thread = threading.Thread(target=reserve)
        thread.start()
        for _ in range(chance.randint(4, 10)):
            others.write()
        thread.join()
        if failures:
            raise failures[0]
        others.check()
        # `kubectl taint` may have removed our taint: that is noticed, and repaired.
        if any(held.id == lease.id and held.claimed for held in own.list_held(order)):
            complete = marks.carries(place.node(HOST), lease.id)
            assert own.renew(HOST, order, later) is complete
            own.mark(HOST, order, later)
            assert own.renew(HOST, order, later) is True
            others.check()
        others.write()
    place.run_janitor()
    assert place.ours() == []
    assert place.foreign(HOST) == others.expected


@pytest.mark.parametrize("seed", range(50))
def test_marks_of_others_survive_any_interleaving(place: site.Site, seed: int) -> None:
    interleave(place, seed)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_marks_of_others_survive_1000_interleavings(place: site.Site) -> None:
    for seed in range(1000, 2000):
        interleave(place, seed)


def test_marks_of_real_kubectl_commands_survive(place: site.Site) -> None:
    lease = site.make_lease()
    commands = [
        ("taint", "node", HOST, "kubectl=1:NoSchedule"),
        ("label", "node", HOST, "kubectl=1"),
        ("annotate", "node", HOST, "kubectl=1"),
        ("cordon", HOST),
        ("uncordon", HOST),
    ]
    ends = threading.Event()

    def reserve() -> None:
        with place.account() as own:
            while not ends.is_set():
                own.claim(HOST, place.order, lease)
                own.mark(HOST, place.order, lease)
                own.renew(HOST, place.order, lease)
                own.release(HOST, place.order, lease.id)

    thread = threading.Thread(target=reserve)
    thread.start()
    try:
        for command in commands:
            place.cluster.kubectl(*command)
    finally:
        ends.set()
        thread.join()
    node = place.node(HOST)
    assert (node["metadata"]["labels"]["kubectl"], node["metadata"]["annotations"]["kubectl"]) == ("1", "1")  # fmt: skip
    assert "kubectl" in {taint["key"] for taint in marks.taints_of(node)}
    assert "unschedulable" not in node["spec"]
    place.run_janitor()
    assert place.ours() == []
    place.cluster.kubectl("taint", "node", HOST, "kubectl-")


def live(
    place: site.Site, own: Any, lease: reservations.Lease, old: reservations.Lease | None
) -> None:
    """Go through all of a reservation, also of a host that an expired lease has marked."""
    order = dataclasses.replace(place.order, no_execute=True)
    if old is not None:
        own.claim(HOST, order, old)
        own.mark(HOST, order, old)
    own.claim(HOST, order, lease)
    own.mark(HOST, order, lease)
    if not own.empty(HOST, order, lease, print):
        nodes.wait_until(lambda: not place.pods(app="lone"), "the pod is evicted")
        assert own.empty(HOST, order, lease, print)
    own.start_agent(HOST, order, lease, SETUP)
    assert own.renew(HOST, order, dataclasses.replace(lease, until_us=lease.until_us + 1))
    own.release(HOST, order, lease.id)


@pytest.mark.parametrize("takes_over", [False, True])
def test_whatever_a_killed_reserver_left_is_removed_by_the_janitor_alone(
    place: site.Site, takes_over: bool
) -> None:
    foreign = {
        "metadata": {
            "labels": {"others.example/l": "1"},
            "annotations": {"others.example/a": "1", marks.AUTOSCALERS[0]: "true"},
        },
        "spec": {"taints": [{"key": "others.example/t", "value": "1", "effect": "PreferNoSchedule"}]},
    }  # fmt: skip
    place.admin.patch(kubernetes_api.NODES, HOST, foreign)
    before = place.foreign(HOST)
    killed_at: list[str] = []
    for number in range(1000):
        steps = iter(range(number))

        def die(step: str, steps: Iterator[int] = steps) -> None:
            if next(steps, None) is None:
                killed_at.append(step)
                raise Killed(step)

        if not takes_over and not place.pods(app="lone"):
            place.admin.create(kubernetes_api.PODS, site.lone_pod("lone", HOST), "default")
        old = site.make_lease(-300_000_000) if takes_over else None
        with place.account(steps=die) as own:
            try:
                live(place, own, site.make_lease(), old)
                break
            except Killed:
                pass
        place.run_janitor()
        place.wait_for_nothing()
        assert place.foreign(HOST) == before
    place.wait_for_nothing()
    assert place.foreign(HOST) == before
    expected = {"before the claim", "claimed", "before the marks", "marked", "before NoExecute", "before the agent"}  # fmt: skip
    assert expected <= set(killed_at)
    assert takes_over or "before the eviction of default/lone" in killed_at
    assert len(killed_at) == number >= (24 if takes_over else 17)
    clean = {"labels": {"others.example/l": None}, "annotations": {"others.example/a": None, marks.AUTOSCALERS[0]: None}}  # fmt: skip
    place.admin.patch(kubernetes_api.NODES, HOST, {"metadata": clean, "spec": {"taints": None}})


def test_no_crash_lets_two_reservers_in(place: site.Site) -> None:
    """Whatever a killed reserver left, its valid lease keeps others out until it is released."""
    for number in range(1, 30):
        steps = iter(range(number))

        def die(step: str, steps: Iterator[int] = steps) -> None:
            if next(steps, None) is None:
                raise Killed(step)

        lease, other = site.make_lease(), site.make_lease()
        with place.account(steps=die) as own:
            try:
                live(place, own, lease, None)
            except Killed:
                pass
            else:
                break
        if not place.ours():
            continue  # killed after the last mark was removed
        with place.account() as second:
            if any(trace.startswith(("node", "leases")) for trace in place.ours()):
                with pytest.raises(reservations.TakenError):
                    second.claim(HOST, place.order, other)
            # The same reserver, started again, goes on.
            second.claim(HOST, place.order, lease)
            second.mark(HOST, place.order, lease)
            assert second.renew(HOST, place.order, lease)
            second.release(HOST, place.order, lease.id)
        place.wait_for_nothing()
    place.wait_for_nothing()


def test_damaged_records_are_removed_and_nothing_of_others(place: site.Site) -> None:
    before = place.foreign(HOST)
    lease = site.make_lease()
    for text in ("", "{", json.dumps({"id": lease.id}), "null", "[" * 2000):
        with place.account() as own:
            own.claim(HOST, place.order, lease)
            own.mark(HOST, place.order, lease)
            place.admin.patch(
                kubernetes_api.NODES, HOST, {"metadata": {"annotations": {marks.RECORD: text}}}
            )
            place.admin.patch(
                kubernetes_api.LEASES,
                marks.name_claim(HOST),
                {"metadata": {"annotations": {marks.RECORD: text}}},
                "overnight",
            )
            assert own.renew(HOST, place.order, lease) is False
        with place.account("overnight-janitor") as janitor:
            (held,) = janitor.list_held(place.order)
            assert (held.id, held.lease, held.claimed) == (lease.id, None, True)
            janitor.release(HOST, place.order, held.id)
        assert place.ours() == []
        assert place.foreign(HOST) == before
