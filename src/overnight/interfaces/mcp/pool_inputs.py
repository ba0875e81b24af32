"""What the tools of pools take, by the runbook's names."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from overnight.interfaces.mcp import values as v

Knobs = dict[str, bool | int | str]
LifecycleClass = Literal["ephemeral", "spot"]
KNOBS = "Settings such as warming_timeout_seconds and ready_ttl_seconds."


class ById(v.Input):
    id: v.Name = Field(description="Id or name of the pool.")


class InstanceId(v.Input):
    id: v.Name = Field(description="Id of the instance.")


class TaskId(v.Input):
    id: v.Name = Field(description="task_id of an instance: INSTANCE:launch or INSTANCE:terminate.")


class OfCluster(v.Input):
    id: v.Name = Field(description="Id of the cluster.", examples=["cluster-585094605e63"])


class Failed(v.Input):
    id: v.Name = Field(description="Id of a pool, an instance or a claim.")


class PoolFields(v.Input):
    min_size: v.Size | None = Field(None, description="Lower bound; of a new pool 0.")
    max_size: v.Size | None = Field(
        None, description="Upper bound; of a new pool target_size + 10."
    )
    lifecycle_class: LifecycleClass | None = Field(None, description="Of a new pool ephemeral.")
    provider_region_id: v.Text | None = None
    provider_instance_type_id: v.Text | None = None
    preferred_regions: list[v.Name] | None = Field(None, description="Regions to try next.")
    metadata: Knobs | None = Field(None, description=KNOBS)


class NewPool(PoolFields):
    name: v.Name
    template_id: v.Name = Field(description="Template that all members are built from.")
    target_size: v.Size = Field(description="Members to keep ready or warming.")
    provider: v.Name | None = Field(None, description="Default: ec2 with a region, else process.")


class PoolUpdate(PoolFields):
    id: v.Name = Field(description="Id or name of the pool.")
    template_id: v.Name | None = None
    target_size: v.Size | None = None
    status: Literal["active", "paused", "draining", "archived"] | None = None
    close_breaker: bool | None = Field(None, description="Launch again after failures.")


class NewClaim(v.Input):
    pool_id: v.Name = Field(description="Id or name of the pool.")
    acquired_by: v.Text = Field("", description="Who uses it.")
    acquired_for: v.Text = Field("", description="What for.")


class Returned(v.Input):
    pool_id: v.Name = Field(description="Id or name of the pool.")
    instance_id: v.Name


class NewInstance(v.Input):
    template_id: v.Name
    provider: v.Name | None = Field(None, description="Default: ec2 with a region, else process.")
    provider_region_id: v.Text | None = None
    provider_instance_type_id: v.Text | None = None
    lifecycle_class: LifecycleClass | None = None
    lease_hours: float = Field(4.0, gt=0, le=336, description="Terminated after this time.")
    acquired_by: v.Text = ""
    acquired_for: v.Text = ""
    cost_per_host_hour: float | None = Field(None, ge=0, description="Only for the cost shown.")


class NewCluster(NewInstance):
    count: int = Field(ge=1, le=10_000, description="Instances at once.")
    at_least: int | None = Field(None, ge=1, description="Accept this many. Default: all.")


class EventsWanted(v.Input):
    pool_id: v.Text = Field("", description="Only of this pool.")
    instance_id: v.Text = Field("", description="Only of this instance.")
    limit: v.Limit = v.ROWS


class Demand(v.Input):
    claims_per_minute: float | None = Field(None, gt=0, description="C, at the peak.")
    warm_up_seconds: float | None = Field(None, gt=0, description="W, from launch to ready.")
    pool_id: v.Text = Field("", description="Measure what is missing on this pool.")
    miss: float = Field(0.01, gt=0, lt=1, description="Share of claims that may find no member.")
    burst: float | None = Field(None, ge=1, description="Claims that come together, on average.")
    hold_seconds: float | None = Field(None, gt=0, description="How long a claim holds a member.")
    cost_per_host_hour: float | None = Field(None, ge=0)
