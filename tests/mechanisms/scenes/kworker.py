import socket

from tests.mechanisms import Program, Scene

NETLINK_XFRM = 6

# The kernel queues the work for the core of the caller; work that any kworker may do moves between cores.
TEXT = """
#include <linux/xfrm.h>
#include <linux/netlink.h>

static int kernel;

static void ask(int kind, const void *body, size_t size) {
  struct { struct nlmsghdr head; char body[256]; } message = {{NLMSG_LENGTH(size), kind, NLM_F_REQUEST}};
  memcpy(message.body, body, size);
  must(send(kernel, &message, message.head.nlmsg_len, 0) > 0, "netlink");
}

int main() {
  struct { unsigned flags; struct nlattr head; struct xfrmu_spdhthresh bits; } limits = {
    0, {sizeof limits.head + sizeof limits.bits, XFRMA_SPD_IPV4_HTHRESH}, {32, 32}};
  struct xfrm_userpolicy_info policy = {.dir = XFRM_POLICY_OUT, .action = XFRM_POLICY_ALLOW};
  policy.sel.family = AF_INET;
  policy.sel.prefixlen_d = policy.sel.prefixlen_s = 32;
  policy.lft.soft_byte_limit = policy.lft.hard_byte_limit = XFRM_INF;
  policy.lft.soft_packet_limit = policy.lft.hard_packet_limit = XFRM_INF;
  kernel = socket(AF_NETLINK, SOCK_RAW, NETLINK_XFRM);
  for (int i = 0; i < 4000 + SEED % 5 * 400; i++) {
    policy.sel.daddr.a4 = htonl(0x0a000000 + i);
    ask(XFRM_MSG_NEWPOLICY, &policy, sizeof policy);
  }
  for (;;) {
    ask(KIND, &limits, SIZE);
    PACE
  }
}
"""


def find_obstacle() -> str:
    try:
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_XFRM).close()
    except OSError as error:
        return f"no IPsec policies: {error.strerror}"
    return ""


def _program(kind: str, size: str, pace: str) -> Program:
    return Program(TEXT.replace("KIND", kind).replace("SIZE", size).replace("PACE", pace))


SCENE = Scene(
    "kworker",
    "Sets the limits of the IPsec policy table; a kworker hashes all policies again (xfrm_hash_rebuild).",
    _program("XFRM_MSG_NEWSPDINFO", "sizeof limits", "usleep(100);"),
    _program(
        "XFRM_MSG_GETSPDINFO", "sizeof limits.flags", "recv(kernel, &policy, sizeof policy, 0);"
    ),
    resembles="reads the limits, which needs no kworker",
    actor=r"kworker/\S+ \[xfrm_hash_rebuild\]",
    obstacle=find_obstacle,
    has_network=True,
)
