"""The tables of pools; database/migrations defines them."""

from __future__ import annotations

from overnight.database import column_types, tables
from overnight.model.pool import LifecycleClass, PoolStatus

pools = tables.table(
    "pools",
    status=column_types.Word(PoolStatus),
    lifecycle_class=column_types.Word(LifecycleClass),
)
members = tables.table("pool_members")
beats = tables.table("pool_beats")
enrolments = tables.table("pool_enrolments")
claims = tables.table("pool_claims")
waiters = tables.table("pool_waiters")
events = tables.table("pool_events")
totals = tables.table("pool_totals")
autoscales = tables.table("pool_autoscales")
clusters = tables.table("pool_clusters")
control = tables.table("pool_control")
