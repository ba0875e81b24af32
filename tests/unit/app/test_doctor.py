"""Each check of the doctor, on fake hosts."""

from __future__ import annotations

import dataclasses
import functools
import pathlib

import pytest

from overnight.app import doctor, imports
from overnight.app.doctor import fleet, host, machines, profiles, signals
from overnight.model.checkup import Check, Status
from overnight.sources import kernel
from overnight.sources.perf import events

OK, DEGRADED, MISSING = Status.OK, Status.DEGRADED, Status.MISSING
EVERYTHING = events.Probe((0, 1), {}, kernel_stacks=True, hardware_cycles=False, own_process=True)


@pytest.fixture
def fake(tmp_path: pathlib.Path) -> doctor.Surroundings:
    """Return an ordinary host with two cores and cgroup v2."""
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


def run_checks(module: doctor.CheckModule, surroundings: doctor.Surroundings) -> dict[str, Check]:
    return {check.id: check for check in module.checks(surroundings)}


def test_host_facts(fake: doctor.Surroundings) -> None:
    checks = run_checks(host, fake)
    assert checks["kernel"].found == "5.4.0-aws"
    assert checks["cores"].facts == {"online": 2}
    assert checks["cgroups"].facts == {"version": "v2"}
    # The data home does not exist yet: the disk that it will be on is checked.
    assert str(fake.home) not in checks["disk"].found


def test_an_empty_root_has_no_host_facts(tmp_path: pathlib.Path) -> None:
    checks = run_checks(host, doctor.Surroundings(home=tmp_path, root=tmp_path / "nothing"))
    for name in ("kernel", "cores", "cgroups"):
        assert checks[name].status is MISSING
        assert "mount" in checks[name].fix


def test_a_small_disk_shows_how_long_it_lasts(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = host.night_bytes(2)
    usage = dataclasses.make_dataclass("Usage", ["free"])(needed // 2)
    monkeypatch.setattr(host.shutil, "disk_usage", lambda _: usage)
    disk = run_checks(host, fake)["disk"]
    assert disk.status is DEGRADED
    assert "enough for 5.0 h" in disk.found
    assert "--home" in disk.fix


def test_the_size_of_a_night_of_96_cores() -> None:
    assert host.night_bytes(96) == 402_278_400 * 8 + 402_278_400 // 6 * 152


@pytest.mark.usefixtures("ordinary_user")
def test_paranoid_4_binds_an_ordinary_user(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = dict.fromkeys((0, 1), "EACCES: Permission denied")
    with_probe(monkeypatch, dataclasses.replace(EVERYTHING, cores=(), refused=refused))
    checks = run_checks(profiles, fake)
    assert checks["perf_event_paranoid"].status is DEGRADED
    assert checks["perf_event_paranoid"].facts == {"level": 4}
    assert checks["perf_event_open"].status is MISSING
    assert "EACCES" in checks["perf_event_open"].found
    assert "perf_event_paranoid=-1" in checks["perf_event_open"].fix
    assert "CAP_PERFMON" in checks["perf_event_open"].fix
    assert checks["kallsyms"].status is DEGRADED


@pytest.mark.usefixtures("ordinary_user")
def test_paranoid_4_does_not_bind_a_user_with_the_capability(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_probe(monkeypatch, EVERYTHING)
    assert run_checks(profiles, fake)["perf_event_paranoid"].status is OK


def test_access_to_processes_of_other_users(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_probe(monkeypatch, EVERYTHING)
    for pid in ("7", "8", "9"):
        (fake.root / "proc" / pid).mkdir()
    (fake.root / "proc/7/root").write_text("not a link: readlink fails, also for root")
    own = fake.root.stat().st_uid
    answers = []
    for user, visible in ((own, False), (own + 1, False), (own + 1, True)):
        monkeypatch.setattr(kernel.os, "geteuid", lambda user=user: user)
        if visible:
            (fake.root / "proc/9/root").symlink_to("/")
        answers.append(run_checks(profiles, fake)["processes"])
    assert [check.status for check in answers] == [OK, DEGRADED, OK]
    assert "CAP_SYS_PTRACE" in answers[1].fix


@pytest.mark.usefixtures("superuser")
def test_paranoid_4_does_not_bind_root(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_probe(monkeypatch, EVERYTHING)
    checks = run_checks(profiles, fake)
    assert checks["perf_event_paranoid"].status is OK
    assert checks["perf_event_open"].status is OK


def test_a_seccomp_filter_differs_from_a_missing_permission(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {0: "ENOSYS: Function not implemented"}
    with_probe(monkeypatch, dataclasses.replace(EVERYTHING, cores=(), refused=refused))
    assert "seccomp" in run_checks(profiles, fake)["perf_event_open"].fix


def test_one_core_refused_is_degraded_and_named(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_probe(
        monkeypatch, dataclasses.replace(EVERYTHING, cores=(0,), refused={1: "ENODEV: gone"})
    )
    check = run_checks(profiles, fake)["perf_event_open"]
    assert check.status is DEGRADED
    assert "[1]" in check.found


def test_perf_missing_from_path(fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    with_probe(monkeypatch, EVERYTHING)
    monkeypatch.setenv("PATH", "/nonexistent")
    check = run_checks(profiles, fake)["perf_binary"]
    assert check.status is MISSING
    assert "--recorder perf" in check.found
    assert check.fix.startswith("apt-get install linux-perf")


def test_the_fallback_decoder_is_reported(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_probe(monkeypatch, EVERYTHING)
    monkeypatch.setattr(profiles.perfdata, "HAS_EXTENSION", False)
    check = run_checks(profiles, fake)["decoder"]
    assert check.status is DEGRADED
    assert "pure-Python" in check.found
    assert "gcc" in check.fix


def test_the_formats_of_imports_and_a_missing_zone_database(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_probe(monkeypatch, EVERYTHING)
    check = run_checks(profiles, fake)["imports"]
    assert tuple(check.found.split(", ")) == imports.format_names()
    monkeypatch.setattr(profiles, "ZONE", "Nowhere/Nothing")
    check = run_checks(profiles, fake)["imports"]
    assert check.status is DEGRADED
    assert "tzdata" in check.fix


def test_a_container_without_kernel_log_and_systemd(fake: doctor.Surroundings) -> None:
    checks = run_checks(signals, fake)
    assert checks["kmsg"].status is MISSING
    assert "--device /dev/kmsg" in checks["kmsg"].fix
    assert checks["systemd"].status is MISSING


def test_systemd_that_does_not_answer(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fake.root / "run/systemd/system").mkdir(parents=True)
    monkeypatch.setattr(signals.systemd, "manager_state", lambda: None)
    assert run_checks(signals, fake)["systemd"].status is DEGRADED
    monkeypatch.setattr(signals.systemd, "manager_state", lambda: "degraded")
    assert run_checks(signals, fake)["systemd"].status is OK


@pytest.mark.usefixtures("ordinary_user")
def test_booting_a_machine_needs_root(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines.shutil, "which", lambda _: "/usr/bin/systemd-nspawn")
    assert run_checks(machines, fake)["nspawn"].status is DEGRADED


@pytest.mark.usefixtures("superuser")
def test_a_kernel_without_overlays(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines.shutil, "which", lambda _: "/usr/bin/systemd-nspawn")
    monkeypatch.setattr(machines, "_cannot_unshare", lambda: "")
    assert "overlay" in run_checks(machines, fake)["nspawn"].found
    monkeypatch.setattr(machines, "_cannot_unshare", lambda: "Operation not permitted")
    assert run_checks(machines, fake)["nspawn"].status is MISSING


def test_credentials_are_found_where_the_tools_look(fake: doctor.Surroundings) -> None:
    unconfigured = run_checks(fleet, fake)
    assert {check.status for check in unconfigured.values()} == {MISSING}
    config = fake.root / "kube.config"
    config.write_text("apiVersion: v1")
    environ = {"KUBECONFIG": f"/absent:{config}", "HOME": str(fake.root), "AWS_PROFILE": "x"}
    (fake.root / ".aws").mkdir()
    (fake.root / ".aws/config").write_text("[profile x]")
    checks = run_checks(fleet, dataclasses.replace(fake, environ=environ))
    assert checks["kubernetes"].facts["credentials"] == str(config)
    assert checks["aws"].status is OK


def test_secrets_are_not_shown(fake: doctor.Surroundings) -> None:
    environ = {"AWS_ACCESS_KEY_ID": "AKIAXXXX", "AWS_SECRET_ACCESS_KEY": "hush"}
    checkup = doctor.examine(dataclasses.replace(fake, environ=environ))
    assert "hush" not in str(checkup)
    assert "AKIAXXXX" not in str(checkup)


def test_an_empty_root_cannot_be_recorded(tmp_path: pathlib.Path) -> None:
    checkup = doctor.examine(doctor.Surroundings(home=tmp_path, root=tmp_path / "nothing"))
    assert not checkup.can_record


def test_only_crashes_machines_and_fleet_are_optional(fake: doctor.Surroundings) -> None:
    optional = {check.id for check in doctor.examine(fake).checks if check.optional}
    assert optional == {"pstore", "kdump", "nspawn", "kubernetes", "aws"}


def test_what_a_panic_leaves_behind(
    fake: doctor.Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals.systemd, "manager_state", lambda: None)
    checks = run_checks(signals, fake)
    assert {checks[name].status for name in ("pstore", "kdump")} == {MISSING}
    assert "ramoops" in checks["pstore"].fix
    assert "crashkernel=" in checks["kdump"].fix
    backend = fake.root / "sys/module/pstore/parameters/backend"
    backend.parent.mkdir(parents=True)
    backend.write_text("(null)\n")
    assert run_checks(signals, fake)["pstore"].status is MISSING
    backend.write_text("efi_pstore\n")
    pstore = run_checks(signals, fake)["pstore"]
    assert (pstore.status, "mount -t pstore" in pstore.fix) == (DEGRADED, True)
    (fake.root / "sys/fs/pstore").mkdir(parents=True)
    (fake.root / "sys/fs/pstore/dmesg-efi-1").touch()
    loaded = fake.root / "sys/kernel/kexec_crash_loaded"
    loaded.parent.mkdir(parents=True)
    loaded.write_text("1\n")
    checks = run_checks(signals, fake)
    assert (checks["pstore"].status, checks["kdump"].status) == (OK, OK)
    assert checks["pstore"].facts == {"backend": "efi_pstore", "files": 1}
