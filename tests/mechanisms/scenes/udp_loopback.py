from tests.mechanisms import Program, Scene

TEXT = """
static void send_and_receive(int from, int to) {
  char text[2048] = {0};
  for (size_t size = 64 + 100 * (SEED % 8);;) {
    must(send(from, text, size, 0) > 0, "send");
    recv(to, text, sizeof text, MSG_DONTWAIT);
  }
}
"""
SCENE = Scene(
    "udp-loopback",
    "Sends UDP datagrams to itself.",
    Program(
        TEXT
        + """
int main() {
  struct sockaddr_in address = {AF_INET, htons(5005), {htonl(INADDR_LOOPBACK)}};
  int from = socket(AF_INET, SOCK_DGRAM, 0), to = socket(AF_INET, SOCK_DGRAM, 0);
  must(!bind(to, (void *)&address, sizeof address), "bind");
  must(!connect(from, (void *)&address, sizeof address), "connect");
  send_and_receive(from, to);
}
"""
    ),
    Program(
        TEXT
        + """
int main() {
  int ends[2];
  must(!socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), "socketpair");
  send_and_receive(ends[0], ends[1]);
}
"""
    ),
    resembles="sends the same datagrams through a Unix socket",
    has_network=True,
)
