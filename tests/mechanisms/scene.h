/* Included before every C program of a scene. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static inline void must(int holds, const char *what) {
  if (!holds) {
    perror(what);
    exit(1);
  }
}

static inline void start_thread(void *(*work)(void *), long number) {
  pthread_t id;
  must(!pthread_create(&id, 0, work, (void *)number), "pthread_create");
}

/* A child that ends with its parent. */
static inline pid_t start_child(void) {
  pid_t parent = getpid(), pid = fork();
  must(pid >= 0, "fork");
  if (!pid) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
  }
  return pid;
}

/* Move the calling thread to a core. */
static inline void move_to(const char *core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(atoi(core), &set);
  must(!sched_setaffinity(0, sizeof set, &set), "sched_setaffinity");
}

static inline char *map_memory(size_t size) {
  char *memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(memory != MAP_FAILED, "mmap");
  return memory;
}

static inline void make_file(const char *path, size_t size) {
  int file = open(path, O_RDWR | O_CREAT, 0600);
  must(file >= 0 && !ftruncate(file, size), path);
  close(file);
}

/* Names for one file: much quicker than files of their own. */
static inline void make_names(const char *folder, const char *format, int count) {
  char first[512], path[512];
  for (int i = 0; i < count; i++) {
    int used = snprintf(path, sizeof path, "%s/", folder);
    snprintf(path + used, sizeof path - used, format, i);
    if (i) must(!link(first, path), path);
    else make_file(strcpy(first, path), 700);
  }
}
