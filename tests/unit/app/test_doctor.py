"""Each answer of the doctor, on hosts that this one is not."""

from __future__ import annotations

import dataclasses
import functools
import pathlib

import pytest

from overnight.app import doctor
from overnight.app.doctor import fleet, host, machines, profiles, signals
from overnight.model.checkup import Check, Status
from overnight.sources.perf import events

OK, DEGRADED, MISSING = Status.OK, Status.DEGRADED, Status.MISSING
EVERYTHING = events.Probe((0, 1), {}, kernel_stacks=True, hardware_cycles=False, own_process=True)


@pytest.fixture
def fake(tmp_path: pathlib.Path) -> doctor.Surroundings:
    """A host of two cores on cgroup v2, an ordinary one."""
    for name, text in {
        "proc/stat": "cpu  2 2 2 2\ncpu0 1 1 1 1\ncpu1 1 1 1 1\nintr 0\n",
        "proc/sys/kernel/osrelease": "5.4.0-aws\n",
        "proc/sys/kernel/perf_event_paranoid": "4\n",
        "proc/kallsyms": "0000000000000000 T _text\n",
        "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "proc/filesystems": "nodev\tproc\n\text4\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return doctor.Surroundings(home=tmp_path / "home/of/data", root=tmp_path, environ={})


@pytest.fixture
def ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.Surroundings, "is_root", property(lambda _: False))


@pytest.fixture
def superuser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.Surroundings, "is_root", property(lambda _: True))


def with_probe(monkeypatch: pytest.MonkeyPatch, probe: events.Probe) -> None:
    prop = functools.cached_property(lambda _: probe)
    prop.__set_name__(doctor.Surroundings, "events")
    monkeypatch.setattr(doctor.Surroundings, "events", prop)


def ask(module: doctor.CheckModule, surroundings: doctor.Surroundings) -> dict[str, Check]:
    return {check.id: check for check in module.checks(surroundings)}


def test_the_host(fake: doctor.Surroundings) -> None:
    found = ask(host, fake)
    assert found["kernel"].found == "5.4.0-aws"
    assert found["cores"].facts == {"online": 2}
    assert found["cgroups"].facts == {"version": "v2"}
    # The data home is not there yet: the disk that it will be on is looked at.
    assert str(fake.home) not in found["disk"].found


def test_an_empty_host_tells_nothing(tmp_path: pathlib.Path) -> None:
    found = ask(host, doctor.Surroundings(home=tmp_path, root=tmp_path / "nothing"))
    for name in ("kernel", "cores", "cgroups"):
        assert found[name].status is MISSING
        assert "mount" in found[name].fix


def test_a_disk_too_small_says_for_how_long_it_lasts(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = host.night_bytes(2)
    usage = dataclasses.make_dataclass("Usage", ["free"])(needed // 2)
    monkeypatch.setattr(host.shutil, "disk_usage", lambda _: usage)
    disk = ask(host, fake)["disk"]
    assert disk.status is DEGRADED
    assert "enough for 5.0 h" in disk.found
    assert "--home" in disk.fix


def test_a_night_of_96_cores_is_counted_in_samples() -> None:
    assert host.night_bytes(96) == 402_278_400 * 8 + 402_278_400 // 6 * 152


@pytest.mark.usefixtures("ordinary_user")
def test_paranoid_4_binds_an_ordinary_user(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = dict.fromkeys((0, 1), "EACCES: Permission denied")
    with_probe(monkeypatch, dataclasses.replace(EVERYTHING, cores=(), refused=refused))
    found = ask(profiles, fake)
    assert found["perf_event_paranoid"].status is DEGRADED
    assert found["perf_event_paranoid"].facts == {"level": 4}
    assert found["perf_event_open"].status is MISSING
    assert "EACCES" in found["perf_event_open"].found
    assert "perf_event_paranoid=-1" in found["perf_event_open"].fix
    assert found["kallsyms"].status is DEGRADED


@pytest.mark.usefixtures("superuser")
def test_paranoid_4_does_not_bind_root(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_probe(monkeypatch, EVERYTHING)
    found = ask(profiles, fake)
    assert found["perf_event_paranoid"].status is OK
    assert found["perf_event_open"].status is OK


def test_a_seccomp_filter_is_told_from_a_missing_permission(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {0: "ENOSYS: Function not implemented"}
    with_probe(monkeypatch, dataclasses.replace(EVERYTHING, cores=(), refused=refused))
    assert "seccomp" in ask(profiles, fake)["perf_event_open"].fix


def test_one_core_refused_is_degraded_and_named(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_probe(
        monkeypatch, dataclasses.replace(EVERYTHING, cores=(0,), refused={1: "ENODEV: gone"})
    )
    found = ask(profiles, fake)["perf_event_open"]
    assert found.status is DEGRADED
    assert "[1]" in found.found


def test_perf_hidden_from_path(fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    with_probe(monkeypatch, EVERYTHING)
    monkeypatch.setenv("PATH", "/nonexistent")
    found = ask(profiles, fake)["perf_binary"]
    assert found.status is MISSING
    assert "native recorder" in found.found
    assert found.fix.startswith("apt-get install linux-perf")


def test_the_fallback_decoder_is_said_clearly(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_probe(monkeypatch, EVERYTHING)
    monkeypatch.setattr(profiles.perfdata, "HAS_EXTENSION", False)
    found = ask(profiles, fake)["decoder"]
    assert found.status is DEGRADED
    assert "pure-Python" in found.found
    assert "gcc" in found.fix


def test_no_kernel_log_in_a_container(fake: doctor.Surroundings) -> None:
    found = ask(signals, fake)
    assert found["kmsg"].status is MISSING
    assert "--device /dev/kmsg" in found["kmsg"].fix
    assert found["systemd"].status is MISSING


def test_systemd_that_does_not_answer(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fake.root / "run/systemd/system").mkdir(parents=True)
    monkeypatch.setattr(signals.systemd, "manager_state", lambda: None)
    assert ask(signals, fake)["systemd"].status is DEGRADED
    monkeypatch.setattr(signals.systemd, "manager_state", lambda: "degraded")
    assert ask(signals, fake)["systemd"].status is OK


@pytest.mark.usefixtures("ordinary_user")
def test_booting_a_machine_takes_root(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines.shutil, "which", lambda _: "/usr/bin/systemd-nspawn")
    assert ask(machines, fake)["nspawn"].status is DEGRADED


@pytest.mark.usefixtures("superuser")
def test_a_kernel_without_overlays(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines.shutil, "which", lambda _: "/usr/bin/systemd-nspawn")
    monkeypatch.setattr(machines, "_cannot_unshare", lambda: "")
    assert "overlay" in ask(machines, fake)["nspawn"].found
    monkeypatch.setattr(machines, "_cannot_unshare", lambda: "Operation not permitted")
    assert ask(machines, fake)["nspawn"].status is MISSING


def test_credentials_are_found_where_the_tools_look(fake: doctor.Surroundings) -> None:
    nobody = ask(fleet, fake)
    assert {check.status for check in nobody.values()} == {MISSING}
    config = fake.root / "kube.config"
    config.write_text("apiVersion: v1")
    environ = {"KUBECONFIG": f"/absent:{config}", "HOME": str(fake.root), "AWS_PROFILE": "x"}
    (fake.root / ".aws").mkdir()
    (fake.root / ".aws/config").write_text("[profile x]")
    found = ask(fleet, dataclasses.replace(fake, environ=environ))
    assert found["kubernetes"].facts["credentials"] == str(config)
    assert found["aws"].status is OK


def test_no_secret_is_ever_shown(fake: doctor.Surroundings) -> None:
    environ = {"AWS_ACCESS_KEY_ID": "AKIAXXXX", "AWS_SECRET_ACCESS_KEY": "hush"}
    found = doctor.examine(dataclasses.replace(fake, environ=environ))
    assert "hush" not in str(found)
    assert "AKIAXXXX" not in str(found)


def test_nothing_can_be_recorded_on_a_host_that_shows_nothing(tmp_path: pathlib.Path) -> None:
    found = doctor.examine(doctor.Surroundings(home=tmp_path, root=tmp_path / "nothing"))
    assert not found.can_record
