"""The policy in docs/reservations-aws.md allows what the providers call, and nothing more."""

from __future__ import annotations

import json
import pathlib
import re

import overnight

PROVIDERS = pathlib.Path(overnight.__file__).parent / "reservations/providers"
DOCUMENT = (pathlib.Path(__file__).parents[2] / "docs/reservations-aws.md").read_text()
SERVICES = "ec2|autoscaling|ecs|ssm|elbv2|elb"
MODULES = ("_aws", "_clusters", "_instance_work", "_ssm", "ec2", "ecs")
# Named by a variable in the source.
VARIABLE = {
    "autoscaling:SetInstanceProtection", "autoscaling:EnterStandby", "autoscaling:DetachInstances", "autoscaling:ExitStandby", "autoscaling:AttachInstances",
    "ecs:DescribeContainerInstances", "ecs:DescribeServices", "ecs:DescribeTasks",
}  # fmt: skip


def test_the_policy_allows_the_calls_of_the_providers() -> None:
    source = "\n".join((PROVIDERS / f"{name}.py").read_text() for name in MODULES)
    called = {
        f"{'elasticloadbalancing' if service.startswith('elb') else service}:{''.join(part.capitalize() for part in operation.split('_'))}"
        for service, operation in re.findall(rf'"({SERVICES})",\s*"([a-z_]+)"', source)
    }
    assert len(called) > 15
    (text,) = re.findall(r"```json\n(.*?)```", DOCUMENT, re.DOTALL)
    allowed = set()
    for statement in json.loads(text)["Statement"]:
        actions = statement["Action"]
        allowed |= {actions} if isinstance(actions, str) else set(actions)
    assert allowed == called | VARIABLE


def test_tags_and_parameters_are_documented() -> None:
    from overnight.reservations.providers import _aws, _aws_marks, _ssm, ecs

    for name in (*_aws_marks.TAGS, _aws.PATH, _ssm.TOKENS, ecs.CONSTRAINT, ecs.ATTRIBUTE):
        assert f"`{name}" in DOCUMENT, name
