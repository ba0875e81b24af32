from tests.mechanisms import Program, Scene

TEXT = """
int main() {
  char text[4096], name[64];
  memset(text, 'x', sizeof text);
  TARGET
  for (;;) {
    if (write(file, text, sizeof text) < 0) usleep(500);
    PACE
  }
}
"""
# In canonical mode without a newline the terminal examines, and then drops, every character.
TERMINAL = """
  int file = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
  must(file >= 0 && !grantpt(file) && !unlockpt(file) && !ptsname_r(file, name, sizeof name), "pty");
  int terminal = open(name, O_RDWR | O_NOCTTY);
  struct termios mode;
  must(terminal >= 0 && !tcgetattr(terminal, &mode), name);
  mode.c_lflag = ICANON;
  tcsetattr(terminal, TCSANOW, &mode);
"""
SCENE = Scene(
    "kworker",
    "Writes to a pseudo-terminal; a kworker processes the characters (flush_to_ldisc).",
    Program(TEXT.replace("TARGET", TERMINAL).replace("PACE", "")),
    Program(TEXT.replace("TARGET", 'int file = open("/dev/zero", O_WRONLY);').replace("PACE", "")),
    resembles="writes to a device that needs no kworker",
    actor=r"kworker/\S+ \[flush_to_ldisc\]",
    any_core=True,
)
