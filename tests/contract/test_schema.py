"""The migrations make exactly the tables that the code speaks of."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import alembic.autogenerate
import alembic.migration
import alembic.script
import pytest
import sqlalchemy as sa

from overnight.pools import database, migrations
from overnight.pools.sql import schema

if TYPE_CHECKING:
    from poolworld import World


def test_the_schema_is_what_the_migrations_make(world: World) -> None:
    with world.plane.context.database.read() as connection:
        compared = alembic.migration.MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        differences = [
            one
            for one in alembic.autogenerate.compare_metadata(compared, schema.METADATA)
            if "alembic_version" not in str(one)
        ]
    assert differences == []


def test_so_are_the_checks_and_the_conditions_of_indexes(
    world: World, tmp_path: pathlib.Path
) -> None:
    """Alembic does not compare them: a database made from the code has the same."""
    where = world.plane.context.database
    with where.read() as connection:
        made = _described(connection)
        kind = connection.dialect.name
    if kind == "sqlite":
        plain = sa.create_engine(f"sqlite:///{tmp_path / 'plain.db'}")
        with plain.begin() as connection:
            schema.METADATA.create_all(connection)
            assert _described(connection) == made
        plain.dispose()
    else:
        with where.write("compare") as connection:
            connection.exec_driver_sql("CREATE SCHEMA beside")
            connection.exec_driver_sql("SET LOCAL search_path TO beside")
            schema.METADATA.create_all(connection)
            assert _described(connection) == made
            connection.exec_driver_sql("DROP SCHEMA beside CASCADE")


def _described(connection: sa.Connection) -> dict[str, object]:
    look = sa.inspect(connection)
    found: dict[str, object] = {}
    for table in schema.METADATA.tables:
        checks = {
            c["name"]: " ".join(c["sqltext"].split()) for c in look.get_check_constraints(table)
        }
        indexes = {
            i["name"]: (
                i["column_names"],
                bool(i["unique"]),
                sorted((k, str(v)) for k, v in i.get("dialect_options", {}).items()),
            )
            for i in look.get_indexes(table)
        }
        keys = sorted(
            (k["name"], tuple(k["constrained_columns"]), str(k["options"]))
            for k in look.get_foreign_keys(table)
        )
        found[table] = (checks, indexes, keys)
    return found


def test_the_last_step_is_the_one_that_is_looked_for() -> None:
    folder = pathlib.Path(migrations.__file__).parent
    assert alembic.script.ScriptDirectory(str(folder)).get_heads() == [migrations.HEAD]


def test_several_that_start_at_once_make_the_tables_once(tmp_path: pathlib.Path) -> None:
    import concurrent.futures

    url = f"sqlite:///{tmp_path / 'new.db'}"

    def start(_: int) -> str:
        where = database.Database(url)
        with where.read() as connection:
            connection.execute(sa.select(schema.pools)).all()
        revision = where.revision()
        where.close()
        return revision

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert list(threads.map(start, range(4))) == [migrations.HEAD] * 4


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "sqlite:///:memory:", "what", ""])
def test_other_databases_are_refused(url: str) -> None:
    from overnight.pools import pool_errors

    with pytest.raises(pool_errors.BadKnobError, match="database"):
        database.Database(url)


def test_a_server_that_is_not_there_is_said_without_its_password(tmp_path: pathlib.Path) -> None:
    from overnight.pools import pool_errors

    where = database.Database(f"postgresql://me:secret@/x?host={tmp_path}")
    with pytest.raises(pool_errors.DatabaseUnavailableError) as caught, where.read():
        pass
    assert "secret" not in str(caught.value.as_json())
