from __future__ import annotations

import array
import errno
import pathlib
import socket

import nicdriver
import pytest

from overnight import sources
from overnight.sources import ethtool


def test_only_error_counters_are_kept_under_the_drivers_names() -> None:
    driver = nicdriver.Driver(nicdriver.ENA)
    rows = ethtool.open_ethtool(interfaces=lambda: ["eth0"], ask=driver)()
    assert rows["eth0 suspected_poll_starvation"] == (6,)
    assert rows["eth0 queue_5_tx_missed_tx"] == (nicdriver.ENA.index("queue_5_tx_missed_tx"),)
    kept = {key.split()[1] for key in rows}
    assert {"total_resets", "reset_fail", "tx_timeout", "wd_expired", "missing_tx_cmpl"} < kept
    assert not {"queue_0_tx_cnt", "queue_0_tx_bytes", "queue_0_tx_napi_comp"} & kept
    assert len(kept) == 7 + 32


def test_the_names_are_read_once() -> None:
    driver = nicdriver.Driver(nicdriver.ENA)
    read = ethtool.open_ethtool(interfaces=lambda: ["eth0"], ask=driver)
    read()
    driver.values = [value + 1 for value in driver.values]
    assert read()["eth0 total_resets"] == (1,)
    assert driver.requests.count(ethtool.GSTRINGS) == 1
    assert driver.requests.count(ethtool.GSTATS) == 2


def test_added_queues_move_the_counters() -> None:
    driver = nicdriver.Driver(["rx_drops", "tx_timeout"])
    read = ethtool.open_ethtool(interfaces=lambda: ["eth0"], ask=driver)
    read()
    driver.names, driver.values = ["cnt", "rx_drops", "tx_timeout"], [7, 8, 9]
    assert read() == {"eth0 rx_drops": (8,), "eth0 tx_timeout": (9,)}


def test_queues_added_between_two_requests_do_not_give_wrong_numbers() -> None:
    driver = nicdriver.Driver(["cnt", "tx_timeout"])
    read = ethtool.open_ethtool(interfaces=lambda: ["eth0"], ask=driver)
    driver.grow_before_numbers = True
    assert read() == {}
    assert read() == {"eth0 tx_timeout": (1,)}


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENODEV])
def test_an_interface_that_does_not_answer_is_left_out(number: int) -> None:
    failing, healthy = nicdriver.Driver([]), nicdriver.Driver(["rx_drops"])
    failing.error = number

    def ask(interface: str, answer: array.array[int]) -> None:
        (failing if interface == "eth0" else healthy)(interface, answer)

    assert ethtool.open_ethtool(interfaces=lambda: ["eth0", "eth1"], ask=ask)() == {
        "eth1 rx_drops": (0,)
    }
    assert list(ethtool.open_drivers(interfaces=lambda: ["eth0", "eth1"], ask=ask)()) == ["eth1"]


def test_the_kernel_is_queried_without_an_ip_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hardened unit allows none."""
    create = socket.socket

    def refuse_ip(family: int, kind: int) -> socket.socket:
        assert family == socket.AF_UNIX
        return create(family, kind)

    monkeypatch.setattr(socket, "socket", refuse_ip)
    with pytest.raises(OSError, match="not supported"):
        ethtool.InterfaceQuery()("lo", array.array("I", (ethtool.GDRVINFO, *[0] * 48)))


def test_another_error_is_raised() -> None:
    driver = nicdriver.Driver([])
    driver.error = errno.EPERM
    with pytest.raises(PermissionError):
        ethtool.open_ethtool(interfaces=lambda: ["eth0"], ask=driver)()
    with pytest.raises(PermissionError):
        ethtool.open_drivers(interfaces=lambda: ["eth0"], ask=driver)()


def test_an_interface_that_comes_back_is_queried_again() -> None:
    driver, names = nicdriver.Driver(["rx_drops"]), ["eth0", "eth1"]
    read = ethtool.open_ethtool(interfaces=lambda: names, ask=driver)
    read()
    names.remove("eth0")
    assert read() == {"eth1 rx_drops": (0,)}
    names[:] = ["eth0"]
    driver.names = ["tx_timeout"]
    assert read() == {"eth0 tx_timeout": (0,)}
    names.clear()
    with pytest.raises(sources.NoDataError):
        read()


def test_a_driver_without_counters() -> None:
    driver = nicdriver.Driver([])
    assert ethtool.open_ethtool(interfaces=lambda: ["eth0"], ask=driver)() == {}
    assert driver.requests == [ethtool.GSSET_INFO]


def test_hostile_names_and_numbers() -> None:
    driver = nicdriver.Driver([b"drop\x1b\xff" + b"x" * 26, b"drops\n"])
    driver.values = [2**64 - 1, 5]
    rows = ethtool.open_ethtool(interfaces=lambda: ["eth0"], ask=driver)()
    assert rows == {
        "eth0 drop\\x1b\\xff" + "x" * 26: (2**63 - 1,),
        "eth0 drops\\x0a": (5,),
    }


def test_a_driver_with_thousands_of_counters_is_bounded() -> None:
    driver = nicdriver.Driver([f"queue_{n}_drops" for n in range(3000)])
    rows = ethtool.open_ethtool(interfaces=lambda: ["eth0"], ask=driver)()
    assert len(rows) == ethtool.MAX_COUNTERS


def test_the_driver_of_an_interface() -> None:
    facts = ethtool.open_drivers(interfaces=lambda: ["eth0"], ask=nicdriver.Driver([]))()
    assert facts == {
        "eth0": {"driver": "ena", "version": "2.11.0g", "firmware": "", "bus": "0000:20:03.0"}
    }


def test_interfaces_of_another_namespace_are_not_mistaken_for_ours(tmp_path: pathlib.Path) -> None:
    """A container's eth0 is not its host's eth0."""
    (tmp_path / "sys/class/net/lo/device").mkdir(parents=True)
    with pytest.raises(sources.NoDataError, match="another network namespace"):
        ethtool.open_ethtool(tmp_path)()
    with pytest.raises(sources.NoDataError, match="another network namespace"):
        ethtool.open_drivers(tmp_path)()
