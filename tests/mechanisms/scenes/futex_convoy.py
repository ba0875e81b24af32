from tests.mechanisms import Program, Scene

SCENE = Scene(
    "futex-convoy",
    "Threads wait for one condition variable; each broadcast wakes all of them, for one mutex.",
    Program(
        """
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long turn;
enum { THREADS = 12 + SEED % 8 };

static void *take_turns(void *number) {
  for (;;) {
    pthread_mutex_lock(&mutex);
    while (turn % THREADS != (long)number) pthread_cond_wait(&changed, &mutex);
    turn++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
  }
}

int main() {
  for (long i = 1; i < THREADS; i++) start_thread(take_turns, i);
  take_turns(0);
}
"""
    ),
    Program(
        """
static void *work(void *number) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  for (volatile long turn = 0;;) {
    pthread_mutex_lock(&mutex);
    turn++;
    pthread_mutex_unlock(&mutex);
  }
}

int main() {
  for (long i = 1; i < 3; i++) start_thread(work, i);
  work(0);
}
"""
    ),
    resembles="locks one mutex per thread, which nobody else wants",
)
