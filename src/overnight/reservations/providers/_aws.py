"""What `ec2` and `ecs` share: calls, the claim, the tags, and giving a host back.

The claim is the parameter /overnight/leases/INSTANCE of Systems Manager: PutParameter without Overwrite fails
if it exists, and tags have no such call. It is never overwritten, so that a reserver that was paused cannot
overwrite the claim of its successor. Only the reserver that has the claim writes the tags: first the record
and what must be undone, then the change itself. EnterStandby and DetachInstances fail for an instance that is
not in service, which keeps off everybody who does not know of the claim.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from overnight import aws, errors, reservations
from overnight.model.pool import Reason
from overnight.model.reservation import Candidate, Held, Lease, Order
from overnight.reservations.providers import _aws_marks, _ssm

PATH = "/overnight/leases"
INSTANCE = re.compile(r"i-[0-9a-f]{8,32}")
ENDED = ("shutting-down", "terminated")
READS = ("describe_", "get_")  # start of calls that change nothing; those that list have pages
SETTLE_SECONDS = 5.0  # wait for tags that were written and are not visible yet
POLICY = "docs/reservations-aws.md"
CHOOSE_ANOTHER = (
    "choose another host, or reserve by --count; `overnight reservations list` lists the leases"
)
# Answers that stay the same when the call is repeated. ValidationError of Auto Scaling depends on its sizes.
FINAL = re.compile(r"ClusterNotFoundException|ValidationException|Invalid\w+\.Malformed")


class AwsError(reservations.PlatformError):
    """A call of AWS failed."""

    def __init__(self, call: str, error: Exception, service: str, order: Order) -> None:
        failure = aws.explain(error, order.region)
        self.code, self.reason, self.retried = failure.code, failure.reason, failure.retried
        super().__init__(
            f"AWS refused or did not answer {call} for {order.where or order.region}",
            why=failure.message,
            todo=_advise(failure, service, order.region),
            retry=not FINAL.fullmatch(failure.code),
        )


def _advise(failure: aws.Failure, service: str, region: str) -> str:
    if failure.unsigned:
        return aws.ADD_CREDENTIALS
    if "Expired" in failure.code:
        return (
            "renew the credentials (`aws sso login`, or a new session token), check them with "
            "`aws sts get-caller-identity`, and repeat the command; a release is retried until it succeeds"
        )
    return {
        Reason.DENIED: f"compare the rights of `aws sts get-caller-identity` with the policy in {POLICY}",
        Reason.THROTTLED: "wait a minute and repeat the command; a driver retries",
        Reason.UNREACHABLE: f"check that this host reaches {service}.{region}.amazonaws.com: region, proxy, VPC endpoint",
        Reason.QUOTA: f"raise the limit under Service Quotas of {region}",
    }.get(failure.reason, f"see {POLICY}; the answer of AWS is above")


def wait_for(what: str, why: str) -> reservations.PlatformError:
    todo = "wait: the driver retries; or repeat the release in a minute"
    return reservations.PlatformError(what, why=why, todo=todo)


class Hosts:
    """Instances of one account; the parts that do not depend on who schedules work on them."""

    name = ""
    kind = ""  # what `order.where` names
    usual = ""  # state of a member that can be reserved

    def __init__(self, settings: reservations.Settings, settle: float = SETTLE_SECONDS) -> None:
        self._steps = settings.steps
        self._settle = settle
        self._clients = aws.Clients("overnight-reservations")

    # The parts that differ.

    def _need_members(self, order: Order) -> Mapping[str, Mapping[str, Any]]:
        """Return the members of a group or cluster by the id of their instance; raise if it does not exist."""
        raise NotImplementedError

    def _read_member(self, member: Mapping[str, Any]) -> Candidate:
        """Return what the group or cluster knows of a host."""
        raise NotImplementedError

    def _give_back(self, host: str, order: Order, lease_id: str, undo: _aws_marks.Undo) -> None:
        raise NotImplementedError

    def _is_changed(self, host: str, order: Order) -> bool:
        """Return whether the host is out of production, by whomever."""
        raise NotImplementedError

    # Calls.

    def _call(
        self, order: Order, service: str, operation: str, *, absent: str = "", **parameters: object
    ) -> Any:
        """Return the answer, with the items of all pages; None for an error with the code `absent`."""
        aws.require_boto3(self.name)
        try:
            client = self._clients.get(service, order.region)
            if client.can_paginate(operation):
                return client.get_paginator(operation).paginate(**parameters).build_full_result()
            answer = getattr(client, operation)(**parameters)
        except Exception as error:  # an HTML page of a proxy is not a botocore error
            failed = AwsError(operation, error, service, order)
            if absent and failed.code == absent:
                return None
            raise failed from error
        if not operation.startswith(READS):
            self._steps(f"{self.name}: {operation}")
        return answer

    def _check(self, order: Order, host: str = "") -> None:
        """Refuse an order that AWS could not answer, without calling it."""
        if not aws.REGION.fullmatch(order.region):
            what = f"--region must be a region code (got {order.region!r})"
            why = "AWS_REGION may differ from host to host, so it is not used"
            raise errors.UsageError(what, why=why, todo="add --region, such as eu-west-1")
        if not order.where:
            what = f"--where must name {self.kind} (got '')"
            raise errors.UsageError(what, why="hosts are chosen from it", todo="add --where")
        if host and not INSTANCE.fullmatch(host):
            raise errors.UsageError(
                f"{host!r} is not the id of an instance",
                why=f"hosts of {self.name} have names such as i-0123456789abcdef0",
                todo=f"list them: `overnight reserve --provider {self.name} --dry-run`",
            )

    # Instances and their tags.

    def list_hosts(self, order: Order) -> Sequence[Candidate]:
        self._check(order)
        members = self._need_members(order)
        found: dict[str, Candidate] = {}
        for start in range(0, len(members), 200):  # the most values of a filter
            ids = sorted(members)[start : start + 200]
            for instance in self._find_instances(order, "instance-id", ids):
                name = instance["InstanceId"]
                found[name] = _add_instance(self._read_member(members[name]), instance)
        return [found[name] for name in sorted(found)]

    def _find_instances(
        self, order: Order, field: str, values: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield instances by a filter, since one unknown id fails a call with ids."""
        filters = [{"Name": field, "Values": list(values)}]
        answer = self._call(order, "ec2", "describe_instances", Filters=filters)
        for group in answer.get("Reservations", ()):
            yield from group["Instances"]

    def _instance(self, order: Order, host: str) -> dict[str, Any] | None:
        """Return a live instance."""
        found = self._find_instances(order, "instance-id", [host])
        return next((each for each in found if each["State"]["Name"] not in ENDED), None)

    def _read_own_marks(self, order: Order, host: str, lease_id: str) -> _aws_marks.Marks | None:
        """Return the tags of this lease; tags that a call has written may take seconds to appear."""
        deadline = time.monotonic() + self._settle
        while (instance := self._instance(order, host)) is not None:
            marks = _aws_marks.read_marks(instance)
            if marks is not None and marks.id == lease_id:
                return marks
            if time.monotonic() >= deadline:
                break
            time.sleep(self._settle / 10)
        return None

    def _write_tags(self, order: Order, host: str, tags: Mapping[str, str]) -> None:
        listed = _aws_marks.write_tags(tags)
        self._call(order, "ec2", "create_tags", Resources=[host], Tags=listed)

    def _write_marks(self, order: Order, host: str, lease: Lease, undo: _aws_marks.Undo) -> None:
        record = {
            _aws_marks.LEASE: lease.id,
            _aws_marks.RECORD: _aws_marks.shorten(lease),
            _aws_marks.UNDO: undo.text(),
            _aws_marks.WHERE: order.where,
        }
        self._write_tags(order, host, record)

    def _remove_marks(self, order: Order, host: str, marks: _aws_marks.Marks) -> None:
        # EC2 deletes a tag that is given with its value only while it has that value.
        listed = _aws_marks.write_tags(marks.tags)
        self._call(order, "ec2", "delete_tags", Resources=[host], Tags=listed)

    # The claim.

    def _hold(
        self, host: str, order: Order, lease: Lease, undo: _aws_marks.Undo
    ) -> tuple[dict[str, Any], _aws_marks.Marks | None]:
        """Create the claim; return the instance and our marks on it from an earlier call."""
        text = _aws_marks.build_claim(lease, order.where, undo)
        created = self._call(
            order, "ssm", "put_parameter", absent="ParameterAlreadyExists",
            Name=f"{PATH}/{host}", Value=text, Type="String", Overwrite=False,
        )  # fmt: skip
        if created is None:
            self._need_claim(host, order, lease)
        instance = self._instance(order, host)
        if instance is None:
            self._drop_claim(host, order, lease.id)
            raise self._unusable(host, order, "")
        marks = self._read_own_marks(order, host, lease.id) if created is None else None
        marks = marks or _aws_marks.read_marks(instance)
        if marks is not None and marks.id != lease.id:
            # Marks without their claim are left to the janitor, who knows whether they have expired.
            self._drop_claim(host, order, lease.id)
            raise self._taken(host, marks.id)
        return instance, marks

    def _need_claim(self, host: str, order: Order, lease: Lease) -> None:
        claim = self._read_claim(host, order)
        if claim is None or claim.id != lease.id:
            raise self._taken(host, (claim.id or "an unreadable claim") if claim else "")

    def _taken(self, host: str, by: str) -> reservations.TakenError:
        """Return the error for a host that another lease has; `by` is '' if the marks were removed."""
        where = f"the parameter {PATH}/{host} or a tag of the instance"
        return reservations.TakenError(
            f"{host} is taken by {by}" if by else f"{host} does not carry the lease any more",
            why=f"{where} names another owner" if by else f"{where} was removed",
            todo=CHOOSE_ANOTHER,
        )

    def _unusable(self, host: str, order: Order, state: str) -> reservations.TakenError:
        return reservations.TakenError(
            f"{host} is {state or 'not'} in {order.where}",
            why=f"only a host that is {self.usual} can be reserved; another operator may have taken it",
            todo=CHOOSE_ANOTHER,
        )

    def _read_claim(self, host: str, order: Order) -> _aws_marks.Marks | None:
        answer = self._call(
            order, "ssm", "get_parameter", absent="ParameterNotFound", Name=f"{PATH}/{host}"
        )
        return _aws_marks.parse_claim(answer["Parameter"]) if answer else None

    def _drop_claim(self, host: str, order: Order, lease_id: str) -> None:
        """Delete the claim if it is of this lease."""
        claim = self._read_claim(host, order)
        if claim is not None and claim.id == lease_id:
            self._call(
                order, "ssm", "delete_parameter", absent="ParameterNotFound", Name=f"{PATH}/{host}"
            )

    # Renewal and release.

    def renew(self, host: str, order: Order, lease: Lease) -> bool:
        """Write a later expiry; False if claim, tags or the state of the host are not of this lease any more."""
        claim = self._read_claim(host, order)
        if claim is None or claim.id != lease.id:
            return False
        if not (self._read_own_marks(order, host, lease.id) and self._is_changed(host, order)):
            return False
        self._write_tags(order, host, {_aws_marks.RECORD: _aws_marks.shorten(lease)})
        return True

    def release(self, host: str, order: Order, lease_id: str) -> None:
        """Restore what the tags list, then remove tags and claim, the claim last."""
        if not INSTANCE.fullmatch(host):
            return  # such a host was never marked
        claim = self._read_claim(host, order)
        if claim is not None and not (claim.id == lease_id and self._made(claim)):
            claim = None
        instance = self._instance(order, host)
        if instance is not None:
            marks = self._read_own_marks(order, host, lease_id) if claim else _aws_marks.read_marks(instance)  # fmt: skip
            if marks is not None and marks.id == lease_id:
                self._undo(host, order, lease_id, marks)
            elif claim and claim.undo and self._is_changed(host, order):
                if claim.age_seconds < _aws_marks.LAG_SECONDS:
                    why = "it was claimed less than a minute ago, and EC2 lists tags late"
                    raise wait_for(f"the tags of {host} are not visible yet", why)
                # Somebody removed the tags. The host was in service before the claim, so the change is ours.
                place = dataclasses.replace(order, where=claim.where)
                self._give_back(host, place, lease_id, claim.undo)
        if claim:
            self._drop_claim(host, order, lease_id)

    def _made(self, marks: _aws_marks.Marks) -> bool:
        """Return whether marks are of this provider; those that cannot be read may be of any."""
        return marks.undo is None or marks.undo.by == self.name

    def _undo(self, host: str, order: Order, lease_id: str, marks: _aws_marks.Marks) -> None:
        if not self._made(marks):
            return
        place = dataclasses.replace(order, where=marks.where or order.where)
        # A record that was damaged: standby and DRAINING can be seen, and protections stay as they are.
        undo = marks.undo or _aws_marks.Undo(by=self.name, how="")
        if undo.agent:
            self.stop_agent(host, order, lease_id)
        self._give_back(host, place, lease_id, undo)
        self._remove_marks(order, host, marks)

    def list_held(self, order: Order) -> list[Held]:
        """List claims and tags of this place; of all places of the region without `where`."""

        def concerns(marks: _aws_marks.Marks) -> bool:
            return self._made(marks) and order.where in ("", marks.where)

        claims = {}
        answer = self._call(order, "ssm", "get_parameters_by_path", Path=PATH)
        for parameter in answer.get("Parameters", ()):
            host, claim = parameter["Name"].rpartition("/")[2], _aws_marks.parse_claim(parameter)
            if INSTANCE.fullmatch(host) and (not claim.id or concerns(claim)):
                claims[host] = claim
        held = []
        for instance in self._find_instances(order, "tag-key", _aws_marks.TAGS):
            marks, host = _aws_marks.read_marks(instance), instance["InstanceId"]
            if marks and concerns(marks) and instance["State"]["Name"] not in ENDED:
                claimed = host in claims and claims[host].id == marks.id
                held.append(Held(host, marks.id, marks.lease, claimed))
                if claimed:
                    del claims[host]
        held += [Held(host, claim.id, claim.lease) for host, claim in claims.items()]
        return sorted(held, key=lambda each: each.host)

    # The agent.

    def start_agent(
        self, host: str, order: Order, lease: Lease, setup: reservations.AgentSetup
    ) -> None:
        """Start an agent by Systems Manager; the tags say so first, so that every release stops it."""
        self._need_claim(host, order, lease)
        _ssm.need_managed(self._call, host, order)
        marks = self._read_own_marks(order, host, lease.id)
        if marks is None or marks.undo is None:
            raise self._taken(host, "")
        undo = dataclasses.replace(marks.undo, agent=True)
        self._write_tags(order, host, {_aws_marks.UNDO: undo.text()})
        _ssm.start(self._call, host, order, lease, setup)

    def stop_agent(self, host: str, order: Order, lease_id: str) -> None:
        _ssm.stop(self._call, host, order, lease_id)


def _add_instance(host: Candidate, instance: Mapping[str, Any]) -> Candidate:
    marks, running = _aws_marks.read_marks(instance), instance["State"]["Name"]
    problems = [running if running != "running" else "", host.unhealthy]
    facts = {
        "image": instance.get("ImageId", ""),
        "architecture": instance.get("Architecture", ""),
        **host.facts,
    }
    tags = _aws_marks.read_tags(instance)
    foreign = {key: value for key, value in tags.items() if key not in _aws_marks.TAGS}
    return dataclasses.replace(
        host,
        labels={**host.labels, **foreign, "hostname": instance.get("PrivateDnsName", "")},
        zone=instance["Placement"]["AvailabilityZone"],
        instance_type=instance["InstanceType"],
        booted_us=int(instance["LaunchTime"].timestamp() * 1_000_000),
        unhealthy=", ".join(filter(None, problems)),
        taken=marks.id if marks is not None else host.taken,
        facts={key: value for key, value in facts.items() if value},
    )
