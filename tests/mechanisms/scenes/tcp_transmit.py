from tests.mechanisms import Program, Scene

TEXT = """
static int ends[2];

static void *receive(void *none) {
  for (char text[65536];;) must(recv(ends[1], text, sizeof text, 0) > 0, "recv");
}

static void send_all(void) {
  char text[4096] = {0};
  for (size_t size = 256 << SEED % 4;;) must(send(ends[0], text, size, 0) > 0, "send");
}
"""
SCENE = Scene(
    "tcp-transmit",
    "Sends small messages through a TCP connection of the loopback interface.",
    Program(
        TEXT
        + """
int main() {
  struct sockaddr_in address = {AF_INET, htons(5005), {htonl(INADDR_LOOPBACK)}};
  int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  must(!bind(listener, (void *)&address, sizeof address) && !listen(listener, 1), "listen");
  ends[0] = socket(AF_INET, SOCK_STREAM, 0);
  must(!connect(ends[0], (void *)&address, sizeof address), "connect");
  setsockopt(ends[0], IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof one);
  ends[1] = accept(listener, 0, 0);
  start_thread(receive, 0);
  send_all();
}
"""
    ),
    Program(
        TEXT
        + """
int main() {
  must(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
  start_thread(receive, 0);
  send_all();
}
"""
    ),
    resembles="sends the same messages through a Unix socket",
    has_network=True,
)
