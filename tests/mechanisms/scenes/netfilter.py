from tests.mechanisms import Program, Scene

TEXT = """
import socket, struct
RULES
target = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
target.bind(("127.0.0.1", 0))
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.connect(target.getsockname())
while True:
    out.send(b"x" * 64)
"""
# nf_tables over netlink (linux/netfilter/nf_tables.h): the program nft may be missing.
RULES = """
kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
kernel.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE: an answer to each rule
kernel.setsockopt(socket.SOL_SOCKET, 32, 8 << 20)

def message(kind, flags, body=b"", resource=0, family=2):
    content = struct.pack(">BBH", family, 0, resource) + body
    return struct.pack("IHHII", 16 + len(content), kind, flags, 0, 0) + content

def attribute(kind, *parts):
    value = b"".join(p if isinstance(p, bytes) else struct.pack(">I", p) for p in parts)
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)

def nested(kind, *parts):
    return attribute(kind | 0x8000, *parts)

def expression(name, *parts):
    return nested(1, attribute(1, name), nested(2, *parts))

def commit(*messages):
    kernel.send(message(16, 1, resource=10, family=0) + b"".join(messages) + message(17, 1, resource=10, family=0))
    for _ in messages:
        answer = kernel.recv(1 << 16)
        (error,) = struct.unpack_from("i", answer, 16)
        if error:
            raise OSError(-error, "nf_tables")

def rule(*expressions):
    return message(0xA06, 0xC05, attribute(1, b"edge\\0") + attribute(2, b"out\\0") + nested(4, *expressions))

chain = attribute(1, b"edge\\0") + attribute(3, b"out\\0")
chain += nested(4, attribute(1, 3), attribute(2, 0)) + attribute(7, b"filter\\0")
commit(message(0xA00, 0x405, attribute(1, b"edge\\0")), message(0xA03, 0x405, chain))
state = expression(b"ct\\0", attribute(1, 1), attribute(2, 0))  # makes the kernel track connections
commit(rule(state))
source = expression(b"payload\\0", attribute(1, 1), attribute(2, 1), attribute(3, 12), attribute(4, 4))
for first in range(0, 1200 + 100 * (SEED % 5), 100):
    commit(*(
        rule(source, expression(b"cmp\\0", attribute(1, 1), attribute(2, 0), nested(3, attribute(1, 0x0A000000 + first + n))))
        for n in range(100)
    ))
"""
SCENE = Scene(
    "netfilter",
    "Sends datagrams through a chain of over a thousand nf_tables rules, with connection tracking.",
    Program(TEXT.replace("RULES", RULES), "python"),
    Program(TEXT.replace("RULES", ""), "python"),
    resembles="sends the same datagrams without rules",
    has_network=True,
)
