from tests.mechanisms import Program, Scene

TEXT = """
import ctypes, socket, struct
target = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
target.bind(("127.0.0.1", 0))
FILTER
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.connect(target.getsockname())
while True:
    out.send(b"x" * 64)
"""
# Classic BPF has no loops: the longest program that the kernel takes, of divisions; then drop the packet.
FILTER = """
code = struct.pack("HBBI", 0x80, 0, 0, 0)  # A = length of the packet
code += struct.pack("HBBI", 0x34, 0, 0, 3) * (4000 - SEED % 500)  # A /= 3
code += struct.pack("HBBI", 0x06, 0, 0, 0)  # return 0
kept = ctypes.create_string_buffer(code)
target.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(kept)))
"""
SCENE = Scene(
    "bpf",
    "Sends datagrams to a socket with a long BPF filter.",
    Program(TEXT.replace("FILTER", FILTER), "python"),
    Program(TEXT.replace("FILTER", ""), "python"),
    resembles="sends the same datagrams to a socket without a filter",
    has_network=True,
)
