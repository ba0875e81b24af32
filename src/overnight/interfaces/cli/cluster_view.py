"""Clusters as text for people, and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.app import pool_documents
from overnight.interfaces.cli import local_time, pool_view, session, suggestions, terminal
from overnight.model import times
from overnight.model.cluster import ClusterState
from overnight.model.text import plural

if TYPE_CHECKING:
    from overnight.model.cluster import ClusterPlan, ClusterReport

HEADINGS = ("cluster", "state", "hosts", "provider", "template", "by", "purpose", "end")


def note(current: session.Session, text: str) -> None:
    terminal.print_line(current.notes(), text, "dim")


def plan(current: session.Session, planned: ClusterPlan) -> None:
    if not current.printed_json(pool_documents.cluster_plan_document(planned)):
        terminal.echo(f"{planned.what}: {planned.limits}")
        terminal.echo("nothing was changed")


def progress(report: ClusterReport) -> tuple[int, str]:
    """Return how many members are ready, and a text about the others."""
    counts = report.details.counts
    failed = f", {plural(report.details.pool.failures, 'failure')} in a row" if report.details.pool.failures else ""  # fmt: skip
    return counts.ready + counts.claimed, f"{counts.warming} warming{failed}"


def _hosts(report: ClusterReport) -> str:
    ready, _ = progress(report)
    left = report.details.counts.members
    if report.cluster.state is ClusterState.ENDED:
        return f"{plural(left, 'host')} terminating" if left else "no hosts left"
    return f"{ready} of {report.cluster.count}"


def _end(report: ClusterReport) -> str:
    cluster, now = report.cluster, times.now_us()
    if cluster.state is ClusterState.ENDED:
        return cluster.reason
    leases = [claim.lease_until_us for claim in report.details.claims if claim.lease_until_us]
    until_us = max(leases, default=cluster.assemble_until_us or now)
    left = times.format_duration(max(0, until_us - now) / times.SECOND_US)
    what = "given up" if cluster.state is ClusterState.ASSEMBLING else "lease ends"
    return f"{what} in {left}"


def listing(current: session.Session, listed: tuple[ClusterReport, ...]) -> None:
    if current.printed_json(pool_documents.clusters_document(listed)):
        return
    rows = [
        (each.cluster.id, str(each.cluster.state), _hosts(each), each.cluster.provider, each.cluster.template,
         each.cluster.acquired_by or "-", each.cluster.acquired_for or "-", _end(each))
        for each in listed
    ]  # fmt: skip
    none = "no clusters; create one: `overnight cluster create --count 50 --template NAME`"
    terminal.echo_columns(HEADINGS, rows, none)


def _summary(report: ClusterReport) -> str:
    cluster = report.cluster
    whose = "".join(f", {label} {text}" for label, text in (("by", cluster.acquired_by), ("for", cluster.acquired_for)) if text)  # fmt: skip
    since = f", held since {local_time.cell(cluster.held_us)}" if cluster.held_us else ""
    hosts = f"{_hosts(report)} hosts" if cluster.state is not ClusterState.ENDED else _hosts(report)
    return f"{cluster.id} {cluster.state}: {hosts}, {cluster.provider} {cluster.template}{whose}{since}; {_end(report)}"


def show(current: session.Session, report: ClusterReport, *, details: bool = True) -> None:
    """Print a cluster, with all that it holds if `details`."""
    report = suggestions.complete_values(report)
    if not current.printed_json(pool_documents.cluster_document(report)):
        terminal.echo(_summary(report))
        if details:
            pool_view.print_problems(report.problems)
            pool_view.print_contents(report.details)
