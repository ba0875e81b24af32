from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight import errors
from overnight.pools import pool_errors, settings

NUMBERS = [n for n in settings.NAMES if type(getattr(settings.PoolSettings(), n)) is int]


def test_the_defaults_are_those_of_the_contract() -> None:
    plain = settings.changed(settings.DEFAULTS, {})
    assert plain.warming_timeout_seconds == 1800
    assert plain.ready_ttl_seconds == 14400
    assert plain.claimed_ttl_seconds == 86400
    assert plain.claimed_ttl_action == "flag"
    assert plain.heartbeat_stale_after_seconds == 180
    assert plain.terminate_attempts == 5
    assert (plain.terminate_backoff_seconds, plain.terminate_backoff_max_seconds) == (300, 3600)
    assert plain.record_retention_seconds == 7 * 86400
    assert plain.reuse_without_reset is False


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("bad", ["abc", "300", -1, True, False, 1.5, None, 10**12, [], ""])
def test_garbage_is_refused_by_name_and_never_becomes_zero(name: str, bad: object) -> None:
    with pytest.raises(pool_errors.BadKnobError, match=name) as caught:
        settings.changed(settings.DEFAULTS, {name: bad})
    assert caught.value.exit_code == errors.ExitCode.USAGE
    assert caught.value.knob == name


@pytest.mark.parametrize(
    "name", [n for n in NUMBERS if n.endswith(("ttl_seconds", "timeout_seconds"))]
)
def test_zero_is_refused_where_it_would_make_everything_stale(name: str) -> None:
    with pytest.raises(pool_errors.BadKnobError):
        settings.changed(settings.DEFAULTS, {name: 0})


@pytest.mark.parametrize("bad", [0, 1, "true", None])
def test_reuse_is_true_or_false(bad: object) -> None:
    with pytest.raises(pool_errors.BadKnobError, match="reuse_without_reset"):
        settings.changed(settings.DEFAULTS, {"reuse_without_reset": bad})


def test_a_choice_is_one_of_its_words() -> None:
    assert (
        settings.changed(settings.DEFAULTS, {"claimed_ttl_action": "terminate"}).claimed_ttl_action
        == "terminate"
    )
    with pytest.raises(pool_errors.BadKnobError, match="claimed_ttl_action") as caught:
        settings.changed(settings.DEFAULTS, {"claimed_ttl_action": "kill"})
    assert "flag, terminate" in caught.value.todo


def test_an_unknown_setting_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(pool_errors.UnknownParameterError, match="warming_timout") as caught:
        settings.changed(settings.DEFAULTS, {"warming_timout_seconds": 5})
    assert "warming_timeout_seconds" in caught.value.todo


def test_one_bad_value_changes_nothing() -> None:
    before = settings.changed(settings.DEFAULTS, {"ready_ttl_seconds": 60})
    with pytest.raises(pool_errors.BadKnobError):
        settings.changed(before, {"claimed_ttl_seconds": 5, "ready_ttl_seconds": "abc"})
    assert before == dataclasses.replace(settings.PoolSettings(), ready_ttl_seconds=60)


@pytest.mark.parametrize("text", ["ready_ttl_seconds=abc", "ready_ttl_seconds=-5", "ready_ttl_seconds=", "ready_ttl_seconds=true", "reuse_without_reset=yes", "ready_ttl_seconds=1e3", "claimed_ttl_action=kill"])  # fmt: skip
def test_values_from_the_command_line_are_checked_as_strictly(text: str) -> None:
    with pytest.raises(pool_errors.BadKnobError, match=text.partition("=")[0]):
        settings.changed(settings.DEFAULTS, dict([settings.parse(text)]))


@given(st.text())
def test_any_text_from_the_command_line_is_a_value_or_a_pool_error(text: str) -> None:
    try:
        name, value = settings.parse(text)
        settings.changed(settings.DEFAULTS, {name: value})
    except pool_errors.PoolError:
        pass


def test_a_setting_without_a_value_is_an_error_with_the_syntax() -> None:
    with pytest.raises(pool_errors.BadKnobError, match="ready_ttl_seconds") as caught:
        settings.parse("ready_ttl_seconds")
    assert "NAME=VALUE" in caught.value.todo
