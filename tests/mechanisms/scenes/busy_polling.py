from tests.mechanisms import Program, Scene

SCENE = Scene(
    "busy-polling",
    "Polls a socket that never has data, without waiting.",
    Program(
        """
int main() {
  int ends[2];
  char text[64];
  must(!socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), "socketpair");
  struct pollfd wanted = {ends[0], POLLIN};
  for (;;) {
    if (SEED % 2) poll(&wanted, 1, 0);
    else recv(ends[0], text, sizeof text, MSG_DONTWAIT);
  }
}
"""
    ),
    Program(
        """
static volatile unsigned long hash = SEED;
int main() { for (;;) hash = hash * 6364136223846793005u + 1442695040888963407u; }
"""
    ),
    resembles="computes, without a system call",
)
