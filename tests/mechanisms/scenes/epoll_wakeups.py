from tests.mechanisms import Program, Scene

TEXT = """
static int request, reply;

static int wait_for(int descriptor) {
  int epoll = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN};
  must(!epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event), "epoll_ctl");
  return epoll;
}

static void *serve(void *number) {
  struct epoll_event event;
  eventfd_t value;
  for (int epoll = wait_for(request);;) {
    WAIT
    if (!eventfd_read(request, &value)) eventfd_write(reply, 1);
  }
}

int main() {
  struct epoll_event event;
  eventfd_t value;
  request = eventfd(0, FLAGS);
  reply = eventfd(0, FLAGS);
  for (long i = 0; i < 12 + SEED % 8; i++) start_thread(serve, i);
  for (int epoll = wait_for(reply);;) {
    eventfd_write(request, 1);
    WAIT
    eventfd_read(reply, &value);
  }
}
"""
SCENE = Scene(
    "epoll-wakeups",
    "Each event wakes all threads that wait for it in epoll_wait; one of them serves it.",
    Program(
        TEXT.replace("WAIT", "epoll_wait(epoll, &event, 1, -1);").replace("FLAGS", "EFD_NONBLOCK")
    ),
    Program(TEXT.replace("WAIT", "").replace("FLAGS", "0")),
    resembles="waits for the same events in read, where each wakes one thread",
)
