from tests.mechanisms import Program, Scene

# Many sockets join one multicast group, and RPS moves the receiving to the other core: little sending causes
# much receiving.
TEXT = """
import ctypes, os, pathlib, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
here = next(iter(os.sched_getaffinity(0)))
os.sched_setaffinity(0, {int(sys.argv[2])})
folder = pathlib.Path(sys.argv[1], "sys")
folder.mkdir()
# The devices of this network namespace show in a sysfs of its own, which ends with this process.
if libc.unshare(0x00020000) or libc.mount(None, b"/", None, 0x44000, None):
    raise OSError(ctypes.get_errno(), "unshare")
if libc.mount(b"sysfs", bytes(folder), b"sysfs", 0, None):
    raise OSError(ctypes.get_errno(), "mount sysfs")
groups = [0] * (here // 32 + 1)
groups[here // 32] = 1 << here % 32
mask = ",".join(f"{group:08x}" for group in reversed(groups))
(folder / "class/net/lo/queues/rx-0/rps_cpus").write_text(mask)
GROUP, PORT, LOCAL = f"239.1.2.{1 + SEED % 250}", 5005, socket.inet_aton("127.0.0.1")
sockets = []
for _ in range(SOCKETS):
    sockets.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    sockets[-1].bind((GROUP, PORT))
    sockets[-1].setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + LOCAL)
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, LOCAL)
out.connect((GROUP, PORT))
out.setblocking(False)
while True:
    for _ in range(64):
        try:
            out.send(b"x" * 64)
        except OSError:
            pass
    time.sleep(0.001)
"""
SCENE = Scene(
    "receive-softirq",
    "Receives datagrams for many sockets in the network softirq of one core.",
    Program(TEXT.replace("SOCKETS", "400"), "python"),
    # One core computes, another receives a little.
    Program(
        """
static volatile double sum;
int main() { for (double i = 1 + SEED;; i += 1) sum += 1 / i; }
"""
    ),
    resembles="computes on the core, without packets",
    actor=r"(ksoftirqd/\d+|{name}\.py \(python[\d.]*\))?",
    kinds=("net.softirq_storm",),
    has_network=True,
)
