from tests.mechanisms import Program, Scene

SCENE = Scene(
    "signals",
    "Sends itself signals, which a handler counts.",
    Program(
        """
static volatile long handled;
static void count(int number) { handled++; }

int main() {
  signal(SIGUSR1, count);
  for (pid_t self = getpid();;) kill(self, SIGUSR1);
}
"""
    ),
    Program("int main() { for (;;) syscall(SYS_getppid); }"),
    resembles="makes as many system calls that do nothing",
)
