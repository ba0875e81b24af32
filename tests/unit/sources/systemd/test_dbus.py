from __future__ import annotations

import contextlib
import pathlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.sources.systemd import dbus

CALL: dbus.Call = ("/org/x", "org.X", "Ask", ("one", ["two", "drei"]))


def test_a_call_is_encoded_as_specified() -> None:
    data = dbus.encode_call(7, CALL)
    order, kind, _, version, body, serial, fields = struct.unpack_from("<BBBBIII", data)
    assert (chr(order), kind, version, serial) == ("l", 1, 1, 7)
    head = 16 + fields + -fields % 8
    assert len(data) == head + body
    listed = dict(dbus.decode("yyyyuua(yv)", data[:head])[-1])
    assert listed == {
        1: "/org/x",
        2: "org.X",
        3: "Ask",
        6: "org.freedesktop.systemd1",
        8: "sas",
    }
    assert dbus.decode("sas", data[head:]) == ["one", ["two", "drei"]]


def test_a_bus_gets_its_own_calls() -> None:
    """It hangs up on a client whose first call is not Hello to the bus itself."""
    data = dbus.encode_call(1, ("/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello", ()))
    assert dict(dbus.decode("yyyyuua(yv)", data)[-1])[6] == "org.freedesktop.DBus"


@pytest.mark.parametrize(
    ("signature", "data", "expected"),
    [
        ("u", b"\x05\0\0\0", [5]),
        ("yx", b"\x01" + b"\0" * 7 + struct.pack("<q", -3), [1, -3]),
        ("b", b"\x01\0\0\0", [True]),
        ("v", b"\x01u\0\0\x07\0\0\0", [7]),
        ("a(yy)", struct.pack("<II", 10, 0) + b"\x01\x02" + b"\0" * 6 + b"\x03\x04", [[(1, 2), (3, 4)]]),
        ("a{sv}", struct.pack("<II", 16, 0) + struct.pack("<I", 1) + b"k\0\x01u\0" + b"\0" * 3 + struct.pack("<I", 9), [[("k", 9)]]),
        ("at", struct.pack("<II", 0, 0), [[]]),
    ],
    ids=str,
)  # fmt: skip
def test_values_are_decoded(signature: str, data: bytes, expected: list[object]) -> None:
    assert dbus.decode(signature, data) == expected


@given(st.text("ybnqiuxtdsogvah(){}z", max_size=12), st.binary(max_size=64))
def test_hostile_bytes_give_values_or_a_dbus_error(signature: str, data: bytes) -> None:
    with contextlib.suppress(dbus.DbusError):
        assert isinstance(dbus.decode(signature, data), list)


def reply(serial: int, value: str) -> bytes:
    body = struct.pack("<I", len(value)) + value.encode() + b"\0"
    fields = bytes((5, 1)) + b"u\0" + struct.pack("<I", serial)
    fields += bytes((8, 1)) + b"g\0" + b"\x01s\0"
    head = struct.pack("<BBBBIII", ord("l"), 2, 0, 1, len(body), 1, len(fields)) + fields
    return head + b"\0" * (-len(head) % 8) + body


SIGNAL = struct.pack("<BBBBIII", ord("l"), 4, 0, 1, 0, 9, 0)
REFUSED = struct.pack("<BBBBIII", ord("l"), 3, 0, 1, 0, 9, 8) + b"\x05\x01u\0"


@contextlib.contextmanager
def server(path: pathlib.Path, *, greeting: bytes, after: bytes = b"") -> Iterator[str]:
    """Accept one connection, greet it, and send the rest after the first call."""
    address = str(path / "private")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()

        def serve() -> None:
            line, _ = listening.accept()
            with line:
                request = line.recv(4096)
                assert request.startswith(b"\0AUTH EXTERNAL ")
                assert request.endswith(b"BEGIN\r\n")
                line.sendall(greeting)
                if after:
                    line.recv(4096)
                    line.sendall(after)

        thread = threading.Thread(target=serve)
        thread.start()
        yield address
        thread.join()


def test_replies_are_in_the_order_of_the_calls(tmp_path: pathlib.Path) -> None:
    messages = SIGNAL + reply(2, "b") + reply(77, "of nobody") + REFUSED + struct.pack("<I", 3) + reply(1, "a")  # fmt: skip
    with server(tmp_path, greeting=b"OK 00\r\n", after=messages) as address:
        line = dbus.Connection(address)
        assert line.ask([CALL, CALL, CALL]) == [["a"], ["b"], None]
        line.close()


@pytest.mark.parametrize(
    ("greeting", "after", "words"),
    [
        (b"REJECTED EXTERNAL\r\n", b"", "refused the authentication"),
        (b"x" * 5000, b"", "end of line"),
        (b"", b"", "hung up|reset"),
        (b"OK 00\r\n", b"l\x02\0\x01", "hung up"),
        (b"OK 00\r\n", struct.pack("<BBBBIII", 108, 2, 0, 1, 1 << 31, 1, 0), "16 MiB"),
    ],
    ids=["refused", "babble", "gone", "cut short", "huge"],
)
def test_an_invalid_reply_of_systemd_is_an_oserror(
    tmp_path: pathlib.Path, greeting: bytes, after: bytes, words: str
) -> None:
    def converse(address: str) -> None:
        line = dbus.Connection(address)
        try:
            line.ask([CALL])
        finally:
            line.close()

    with (
        server(tmp_path, greeting=greeting, after=after) as address,
        pytest.raises(OSError, match=words),
    ):
        converse(address)


def test_an_array_of_empty_structs_is_refused() -> None:
    with pytest.raises(dbus.DbusError):
        dbus.decode("a()", struct.pack("<II", 4, 0) + b"\0" * 8)
