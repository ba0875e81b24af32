from tests.mechanisms import Program, Scene

SCENE = Scene(
    "pipe-ping-pong",
    "Two processes pass a byte to and fro through pipes.",
    Program(
        """
static int there[2], back[2];

static void pass(int from, int to) {
  for (char byte; read(from, &byte, 1) == 1;) write(to, &byte, 1);
}

int main() {
  must(!pipe(there) && !pipe(back), "pipe");
  write(back[1], "x", 1);
  if (start_child()) pass(back[0], there[1]);
  pass(there[0], back[1]);
}
"""
    ),
    Program(
        """
int main() {
  int ends[2];
  must(!pipe(ends), "pipe");
  for (char text[512];;) {
    write(ends[1], text, sizeof text);
    read(ends[0], text, sizeof text);
  }
}
"""
    ),
    resembles="writes to a pipe and reads it back itself, without a context switch",
)
