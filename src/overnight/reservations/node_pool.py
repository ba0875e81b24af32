"""Pool members that are nodes of a Kubernetes cluster: reserved and emptied at launch, released at their end.

A provider of pools on top of reservations. The lease of a member names it, so that nothing but the cluster is needed
to list members; each inventory renews the leases. Without a reaper they end, and the janitor gives the nodes back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import pathlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from overnight import errors, pools, reservations
from overnight.kubernetes_api import configuration
from overnight.model import times
from overnight.model.pool import Reason
from overnight.model.reservation import LEASE_ID, MAX_SECONDS, Held, HostPlan, Lease, Order
from overnight.pools import pool_errors
from overnight.pools.providers import _boot
from overnight.reservations import selection
from overnight.reservations.providers import _kubernetes_agent as agents
from overnight.reservations.providers import kubernetes

NAME = "kubernetes"
EVICT = "evict"
CLUSTER = Order(provider=NAME)
LABEL = re.compile(r"([\w./-]+)=([\w.-]*)", re.ASCII)
PURPOSE = re.compile(r"pool .+ member (\S+)")
LEASE_US = 6 * 3600 * 1_000_000
EMPTY_SECONDS, POLL_SECONDS = 90.0, 0.5  # within provider_timeout_seconds
MAX_PLANS = 50  # nodes that are compared
REASONS = {401: Reason.DENIED, 403: Reason.DENIED, 429: Reason.THROTTLED}
START = (
    "umask 077; cd {home}; [ -e order.json ] || {{ cat {files}/order.json > new && mv new order.json; }}; "
    "exec python3 -I -S {files}/agent.py {home}"
)


def create(home: pathlib.Path, steps: reservations.Steps = lambda _: None) -> ReservedNodes:
    settings = reservations.Settings(home=home, steps=steps)
    return ReservedNodes(kubernetes.create(settings), settings)


class ReservedNodes(pools.Provider):
    """Nodes of the current context, or of the cluster of this pod; the id of a machine is NODE/LEASE."""

    name = NAME
    fixed: Mapping[str, object] = {
        "lifecycle_class": "ephemeral", "region": "", "preferred_regions": (),
    }  # fmt: skip

    def __init__(self, nodes: kubernetes.Nodes, settings: reservations.Settings) -> None:
        self._nodes = nodes
        self._settings = settings

    def check(self, order: pools.Order) -> None:
        """Refuse what could never be launched, without calling the cluster."""
        configuration.require_lightkube()
        _parse_template(order)
        if not self._settings.image:
            raise errors.CannotError(
                "no container image for the agents of members is given",
                why="each member's agent is a pod on its node",
                todo=f"export {reservations.IMAGE_VARIABLE}=IMAGE   (any image with python3)",
            )

    def launch(self, order: pools.Order) -> pools.Machine:
        """Reserve and empty a node that matches; the same member always gets the same one."""
        try:
            self.check(order)
        except errors.OvernightError as error:
            raise pools.ProviderError(
                Reason.ORDER_REFUSED, error.what, todo=error.todo, nothing_made=True
            ) from error
        wanted = _parse_template(order)
        with _translated():
            lease = _build_lease(order)
            held = next((h for h in self._nodes.list_held(wanted) if h.id == lease.id), None)
            hosts, problems = self._choose(wanted), []
            if held is not None:  # of a launch that was interrupted
                lease, hosts = held.lease or lease, iter([held.host])
            for host in hosts:
                try:
                    self._take(host, wanted, lease)
                except (reservations.TakenError, reservations.NotEmptyError) as error:
                    problems.append(error.what)
                    self._nodes.release(host, wanted, lease.id)
                    continue
                self._start_agent(host, wanted, lease, order)
                return _machine(host, lease.id, order.member_id)
        raise pools.ProviderError(
            Reason.CAPACITY,
            f"no node is free that matches {order.template}: {'; '.join(problems[:5]) or 'all are taken or in use'}",
            todo="`overnight reserve --provider kubernetes --dry-run` shows why, node by node",
            nothing_made=True,
        )

    def terminate(self, machine_id: str) -> None:
        """Release a node; one that is gone, or has another lease, is released."""
        host, _, lease_id = machine_id.rpartition("/")
        if not host or not LEASE_ID.fullmatch(lease_id):
            raise pools.ProviderError(Reason.ERROR, f"{machine_id!r} is not a machine id")
        with _translated():
            self._nodes.release(host, CLUSTER, lease_id)

    def inventory(self, owner: str) -> Sequence[pools.Machine]:
        """List the owner's nodes, and renew their leases."""
        machines = []
        with _translated():
            for held in self._nodes.list_held(CLUSTER):
                if (member := _find_member(held, owner)) and held.lease and not held.gone:
                    machines.append(_machine(held.host, held.id, member))
                    self._renew(held.host, held.lease)
        return machines

    def _renew(self, host: str, lease: Lease) -> None:
        now = times.now_us()
        until = min(now + LEASE_US, lease.cap_us)
        if lease.until_us - now < LEASE_US // 2 and until > lease.until_us:
            self._nodes.renew(host, CLUSTER, dataclasses.replace(lease, until_us=until))

    def _choose(self, wanted: Order) -> Iterator[str]:
        """Yield nodes that may be taken; with evictions, the one that disturbs others least first."""
        found, _ = selection.rank(wanted, self._nodes.list_hosts(wanted), now_us=times.now_us())
        plans: Iterator[HostPlan] = (self._nodes.plan(host, wanted) for host in found)
        if wanted.evict:
            plans = iter(sorted(itertools.islice(plans, MAX_PLANS), key=selection.disturbance))
        for plan in plans:
            # Nobody is asked, so nothing is done that cannot be undone, such as deleting a lone pod.
            if not plan.disrupts and not selection.unfit(plan, wanted):
                yield plan.host.name

    def _take(self, host: str, wanted: Order, lease: Lease) -> None:
        self._nodes.claim(host, wanted, lease)
        self._nodes.mark(host, wanted, lease)
        deadline = time.monotonic() + (EMPTY_SECONDS if wanted.evict else 0.0)
        reports: list[str] = []
        while not self._nodes.empty(host, wanted, lease, reports.append):
            if time.monotonic() > deadline:
                what = f"{host} is not empty: {reports[-1]}"
                raise reservations.NotEmptyError(
                    what, why="pods are on it", todo="kubectl get pods -A"
                )
            time.sleep(POLL_SECONDS)

    def _start_agent(self, host: str, wanted: Order, lease: Lease, order: pools.Order) -> None:
        namespace = f"{self._settings.namespace}-agents"
        setup = reservations.AgentSetup(server=order.endpoint)
        pod = _reduce(agents.build_pod(host, namespace, self._settings.image, lease, setup))
        files = {"order.json": json.dumps(order.as_json()), "agent.py": _boot.AGENT.read_text()}
        self._nodes.start_pod(wanted, pod, files)


def _reduce(pod: dict[str, Any]) -> dict[str, Any]:
    """Make the pod of a recorder that of a member's agent, which sees nothing of its node."""
    spec = pod["spec"]
    (container,) = spec["containers"]
    spec["hostPID"] = False
    spec["terminationGracePeriodSeconds"] = 1
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] != "cgroups"]
    container["volumeMounts"] = [m for m in container["volumeMounts"] if m["name"] != "cgroups"]
    container["name"] = "member"
    container["command"] = ["sh", "-c", START.format(home=agents.HOME, files=agents.TOKENS)]
    container["securityContext"]["capabilities"] = {"drop": ["ALL"]}
    container["resources"] = {
        "requests": {"cpu": "10m", "memory": "32Mi"},
        "limits": {"cpu": "100m", "memory": "128Mi"},
    }
    return pod


def _parse_template(order: pools.Order) -> Order:
    terms = order.template.split(",")
    labels = {match[1]: match[2] for term in terms if (match := LABEL.fullmatch(term))}
    evict = EVICT in terms
    if not labels or len(labels) + evict != len(terms):
        wanted = "labels of nodes such as gpu=h100,disk=ssd, and the word evict if pods may be evicted"  # fmt: skip
        raise pool_errors.BadKnobError("template", order.template, wanted)
    return Order(provider=NAME, labels=labels, evict=evict, instance_type=order.instance_type)


def _build_id(owner: str, member_id: str) -> str:
    return f"r-{hashlib.sha256(f'{owner}/{member_id}'.encode()).hexdigest()[:12]}"


def _build_lease(order: pools.Order) -> Lease:
    now = times.now_us()
    purpose = f"pool {order.pool} member {order.member_id}"
    lease_id, cap_us = _build_id(order.owner, order.member_id), now + MAX_SECONDS * 1_000_000
    return Lease(lease_id, order.owner, now + LEASE_US, cap_us, purpose)


def _find_member(held: Held, owner: str) -> str:
    """Return the member that a mark belongs to; '' if it does not belong to a member of this owner."""
    match = PURPOSE.fullmatch(held.lease.purpose) if held.lease else None
    return match[1] if match and held.id == _build_id(owner, match[1]) else ""


def _machine(host: str, lease_id: str, member_id: str) -> pools.Machine:
    return pools.Machine(id=f"{host}/{lease_id}", member_id=member_id, address=f"{host}#{lease_id}")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except reservations.PlatformError as error:
        code = getattr(error.__cause__, "code", 0)
        unknown = Reason.UNREACHABLE if error.retry and not code else Reason.ERROR
        reason = REASONS.get(code, unknown)
        raise pools.ProviderError(reason, f"{error.what}: {error.why}", todo=error.todo) from error
