from tests.mechanisms import Program, Scene
from tests.mechanisms.scenes import pipe_ping_pong

SCENE = Scene(
    "ptrace",
    "Stops a child at each system call, as strace does.",
    Program(
        """
int main() {
  pid_t child = start_child();
  if (!child) {
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    raise(SIGSTOP);
    for (;;) syscall(SYS_getppid);
  }
  for (int status; waitpid(child, &status, 0) == child && WIFSTOPPED(status);)
    must(!ptrace(PTRACE_SYSCALL, child, 0, 0), "ptrace");
}
"""
    ),
    pipe_ping_pong.SCENE.program,
    resembles="switches between two processes as often, without ptrace",
)
