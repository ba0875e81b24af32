"""The migrations create exactly the tables that the code defines."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import pathlib
from typing import TYPE_CHECKING

import alembic.autogenerate
import alembic.command
import alembic.migration
import alembic.script
import poolprovider
import poolworld
import pytest
import sqlalchemy as sa

from overnight import errors, pools
from overnight.database import database_errors, engine, migrations, tables
from overnight.fleet.sql import schema as fleet_schema
from overnight.investigations.sql import schema as investigation_schema
from overnight.model.pool import Claim, Member, MemberState, Pool
from overnight.pools.sql import event_rows, schema, total_rows
from overnight.reservations.sql import schema as reservation_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from poolworld import World


def test_the_schema_is_what_the_migrations_make(world: World) -> None:
    with world.plane.context.database.read() as connection:
        compared = alembic.migration.MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        differences = [
            difference
            for difference in alembic.autogenerate.compare_metadata(compared, tables.METADATA)
            if "alembic_version" not in str(difference)
        ]
    assert differences == []


def test_the_tables_of_every_package_are_compared() -> None:
    compared = {*tables.METADATA.tables.values()}
    assert {schema.pools, fleet_schema.hosts, fleet_schema.audit} <= compared
    assert {reservation_schema.reservations, reservation_schema.hosts} <= compared
    assert {investigation_schema.investigations, investigation_schema.notes} <= compared
    assert sum(table.name.startswith("fleet_") for table in compared) == 15


def test_checks_and_index_conditions_are_what_the_migrations_make(
    world: World, tmp_path: pathlib.Path
) -> None:
    """Alembic does not compare them; compare with a database created from the code."""
    where = world.plane.context.database
    with where.read() as connection:
        migrated = _describe(connection)
        kind = connection.dialect.name
    if kind == "sqlite":
        plain = sa.create_engine(f"sqlite:///{tmp_path / 'plain.db'}")
        with plain.begin() as connection:
            tables.METADATA.create_all(connection)
            assert _describe(connection) == migrated
        plain.dispose()
    else:
        with where.write("compare") as connection:
            connection.exec_driver_sql("CREATE SCHEMA other")
            connection.exec_driver_sql("SET LOCAL search_path TO other")
            tables.METADATA.create_all(connection)
            assert _describe(connection) == migrated
            connection.exec_driver_sql("DROP SCHEMA other CASCADE")


def _describe(connection: sa.Connection) -> dict[str, object]:
    inspector = sa.inspect(connection)
    described: dict[str, object] = {}
    for table in tables.METADATA.tables:
        checks = {
            c["name"]: " ".join(c["sqltext"].split())
            for c in inspector.get_check_constraints(table)
        }
        indexes = {
            i["name"]: (
                i["column_names"],
                bool(i["unique"]),
                sorted((k, str(v)) for k, v in i.get("dialect_options", {}).items()),
            )
            for i in inspector.get_indexes(table)
        }
        keys = sorted(
            (k["name"], tuple(k["constrained_columns"]), str(k["options"]))
            for k in inspector.get_foreign_keys(table)
        )
        described[table] = (checks, indexes, keys)
    return described


def test_the_expected_revision_is_the_last_migration() -> None:
    folder = pathlib.Path(migrations.__file__).parent
    assert alembic.script.ScriptDirectory(str(folder)).get_heads() == [migrations.HEAD]


# What each step makes of the one before, on SQLite. A step is never changed once a database may have run it: add another.
FROZEN = {
    "0001": "61a153f51ed4d261",
    "0002": "294ea39a767780b2",
    "0003": "6ccc35d5f25f6ff5",
    "0004": "1be4ad4c046b46e4",
    "0005": "01397380ecf6ec03",
    "0006": "fd444b490de0d4c3",
    "0007": "12bff478b4380863",
    "0008": "5390ee8e606dcd32",
    "0009": "ae4e4db6d8d1b2c6",
    "0010": "74829db229fae578",
    "0011": "6532a72fc7d5c6f1",
    "0012": "f5c55ce0aae2a009",
    "0013": "5ee3320658286768",
}


@pytest.mark.parametrize("revision", FROZEN)
def test_a_step_makes_what_it_always_made(revision: str, tmp_path: pathlib.Path) -> None:
    with older_database(f"sqlite:///{tmp_path / 'old.db'}", revision) as (_, connection):
        chosen = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
        made = [" ".join(sql.split()) for sql in connection.exec_driver_sql(chosen).scalars()]
    assert hashlib.sha256("\n".join(made).encode()).hexdigest()[:16] == FROZEN[revision]


def test_every_step_is_frozen() -> None:
    assert [*FROZEN] == [step.partition("_")[0] for step in migrations.STEPS]


@contextlib.contextmanager
def older_database(url: str, revision: str) -> Iterator[tuple[str, sa.Connection]]:
    """Open a database of an older version; yields its URL as well."""
    if url.startswith("postgresql"):
        with contextlib.closing(engine.Database(url)) as where, where.write("old") as connection:
            connection.exec_driver_sql("DROP SCHEMA IF EXISTS old CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA old")
        url += ("&" if "?" in url else "?") + "options=-csearch_path%3Dold"
    upgrade = alembic.command.upgrade
    with pytest.MonkeyPatch.context() as older, contextlib.closing(engine.Database(url)) as where:
        older.setattr(migrations, "HEAD", revision)
        older.setattr(alembic.command, "upgrade", lambda config, _: upgrade(config, revision))
        with where.write("old") as connection:
            yield url, connection


def test_an_older_database_is_upgraded_and_counts_from_then_on(url: str) -> None:
    event = "at_us, kind, pool_id, pool, member_id, claim_id, reason, detail"
    with older_database(url, "0002") as (url, connection):
        connection.exec_driver_sql(
            f"INSERT INTO pool_events ({event}) VALUES (5, 'tick_failed', '', '', '', '', '', '')"
        )
    with contextlib.closing(engine.Database(url)) as where:
        with where.write("new") as connection:
            assert [kept.at_us for kept in event_rows.list_recent(connection, "", 9)] == [5]
            assert total_rows.list_all(connection) == []
            event_rows.add(connection, "tick_failed", 6, took_us=7)
            [total] = total_rows.list_all(connection)
        assert (total.number, total.took_us) == (1, 7)
        assert where.revision() == migrations.HEAD


def test_pools_members_and_claims_of_an_older_database_stay(url: str) -> None:
    pool = Pool(id="p-1", name="ci", template="t", target_size=0, min_size=0, max_size=2, provider="scripted")  # fmt: skip
    member = Member(id="m-1", pool_id="p-1", state=MemberState.CLAIMED, provider="scripted", machine_id="i-1", acquired_us=4)  # fmt: skip
    claim = Claim(id="c-1", pool_id="p-1", member_id="m-1", acquired_by="job-17", acquired_us=4)
    rows = (
        ("pools", {**dataclasses.asdict(pool), "knobs": dataclasses.asdict(pool.settings)}),
        ("pool_members", dataclasses.asdict(member)),
        ("pool_claims", {**dataclasses.asdict(claim), "batch_place": 0}),
    )
    with older_database(url, "0003") as (url, connection):
        for name, values in rows:
            table = sa.Table(name, sa.MetaData(), autoload_with=connection)
            kept = {column: value for column, value in values.items() if column in table.c}
            connection.execute(table.insert().values(kept))
    world = poolworld.World(url, provider=poolprovider.OnHost("alpha"))
    try:
        shown = world.plane.show("ci")
        assert (shown.pool, shown.members, shown.claims) == (pool, (member,), (claim,))
        world.provider.machines["i-1"] = pools.Machine(id="i-1", member_id="m-1")
        world.provider.owners["i-1"] = world.plane.context.owner
        world.plane.sweep("scripted")
        assert world.plane.member("m-1") == dataclasses.replace(member, host="alpha")
        assert world.plane.give_back("c-1").gone_us is not None
        world.plane.delete("ci")
        assert world.plane.show_member("m-1").pool == "ci"
        assert world.plane.list(archived=True) == ()
    finally:
        world.close()


def test_concurrent_starts_create_the_tables_once(tmp_path: pathlib.Path) -> None:
    import concurrent.futures

    url = f"sqlite:///{tmp_path / 'new.db'}"

    def start(_: int) -> str:
        where = engine.Database(url)
        with where.read() as connection:
            connection.execute(sa.select(schema.pools)).all()
        revision = where.revision()
        where.close()
        return revision

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert list(threads.map(start, range(4))) == [migrations.HEAD] * 4


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "sqlite:///:memory:", "what", ""])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(database_errors.BadUrlError, match="database"):
        engine.Database(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cret@/x?host=FOLDER",
        "postgresql://me@/x?host=FOLDER&password=s3cret",
        "postgresql:///x?password=s3cret&host=FOLDER&sslpassword=s3cret",
        "postgresql://me:p@s3cret@127.0.0.1:9/x",
        "postgresql://me:s3cret@s3cret@127.0.0.1:9/x?password=a@s3cret",
        "postgresql://me:a/s3cret@127.0.0.1:9/x",
        "postgresql://me:a%40s3cret@127.0.0.1:9/x",
        "postgresql://me:s3cret@127.0.0.1:port/x",
        "postgresql://127.0.0.1:9/x?password=a@s3cret&s3cret",
        "mysql://me:s3cret@db/x?password=s3cret",
        "me:s3cret@db/x",
        "host=127.0.0.1 port=9 password=s3cret",
        "password = s3cret host=127.0.0.1",
        "me@db/x;password=s3cret",
        "mysql://me:s3cret?key=s3cret@127.0.0.1:9/x",
        "postgresql://me:s3cret@/x?host=FOLDER&nonsense=s3cret",
    ],
)
def test_no_error_shows_a_password(tmp_path: pathlib.Path, url: str) -> None:
    with pytest.raises(errors.OvernightError) as caught:
        engine.Database(url.replace("FOLDER", str(tmp_path))).revision()
    assert "s3cret" not in str(caught.value.as_json()).replace("nonsense=s3cret", "")


def test_the_error_for_an_unreachable_server_hides_the_password(tmp_path: pathlib.Path) -> None:
    where = engine.Database(f"postgresql://me:secret@/x?host={tmp_path}")
    with pytest.raises(database_errors.DatabaseUnavailableError) as caught, where.read():
        pass
    assert "secret" not in str(caught.value.as_json())
