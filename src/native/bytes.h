/* Reading little-endian integers from bytes of any alignment, and telling Python what is wrong. */
#ifndef OVERNIGHT_BYTES_H
#define OVERNIGHT_BYTES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static inline uint16_t u16_at(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
static inline uint32_t u32_at(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}
static inline uint64_t u64_at(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}
#else
#error "perf.data is decoded on little-endian machines only; the pure-Python decoder takes over"
#endif

/* ValueError(problem, offset): the Python side adds the file's name. */
static inline void refuse(PyObject *problem, size_t offset) {
    PyObject *args = problem ? Py_BuildValue("(Nn)", problem, (Py_ssize_t)offset) : NULL;
    if (args)
        PyErr_SetObject(PyExc_ValueError, args);
    Py_XDECREF(args);
}

/* A growing array; 0, or -1 with MemoryError set. */
typedef struct {
    void *items;
    size_t used, room;
} list;

static inline int list_reserve(list *l, size_t more, size_t width) {
    if (l->used + more <= l->room)
        return 0;
    size_t room = l->room ? l->room * 2 : 256;
    while (room < l->used + more)
        room *= 2;
    void *items = realloc(l->items, room * width);
    if (!items) {
        PyErr_NoMemory();
        return -1;
    }
    l->items = items;
    l->room = room;
    return 0;
}

#define ITEM(l, type, i) (((type *)(l).items)[i])
#define PUSH(l, type, value) (list_reserve(&(l), 1, sizeof(type)) ? -1 : (ITEM(l, type, (l).used++) = (value), 0))

/* The list's items as a bytes object. */
static inline PyObject *list_bytes(const list *l, size_t width) {
    return PyBytes_FromStringAndSize(l->used ? l->items : "", (Py_ssize_t)(l->used * width));
}

/* Open addressing, power-of-two sizes: hash -> u32 index into a table that holds the keys. */
typedef struct {
    uint64_t *hashes;
    uint32_t *values; /* EMPTY where the slot is free */
    size_t used, room;
} index_t;

enum { EMPTY = 0xffffffff };

static inline uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    return x ^ x >> 32;
}

/* Where hashes begin: whoever makes a file to collide cannot know it. Set once; in no output. */
static uint64_t secret;

static inline void choose_secret(void) {
    if (getrandom(&secret, sizeof secret, GRND_NONBLOCK) != (ssize_t)sizeof secret)
        secret = mix((uintptr_t)&secret); /* early in boot: where the kernel loaded us is random, too */
}

/* The hash of what was hashed before, or of `secret`, and one word more. A full mix each: of a mere
 * multiplication, flipping the top bit of one word and the right ones of the next cancels out. */
static inline uint64_t join(uint64_t hash, uint64_t word) { return mix(hash ^ word); }

static inline int index_grow(index_t *t) {
    if (t->used * 2 < t->room)
        return 0;
    index_t bigger = {.room = t->room ? t->room * 2 : 1024, .used = t->used};
    bigger.hashes = malloc(bigger.room * sizeof(uint64_t));
    bigger.values = malloc(bigger.room * sizeof(uint32_t));
    if (!bigger.hashes || !bigger.values) {
        free(bigger.hashes);
        free(bigger.values);
        PyErr_NoMemory();
        return -1;
    }
    memset(bigger.values, 0xff, bigger.room * sizeof(uint32_t));
    for (size_t i = 0; i < t->room; i++) {
        if (t->values[i] == EMPTY)
            continue;
        size_t slot = t->hashes[i] & (bigger.room - 1);
        while (bigger.values[slot] != EMPTY)
            slot = (slot + 1) & (bigger.room - 1);
        bigger.hashes[slot] = t->hashes[i];
        bigger.values[slot] = t->values[i];
    }
    free(t->hashes);
    free(t->values);
    *t = bigger;
    return 0;
}

/* Visits the slots of a hash: `for (slot = index_first(t, h); index_taken(t, slot); slot = index_next(t, slot))`. */
static inline size_t index_first(const index_t *t, uint64_t hash) { return hash & (t->room - 1); }
static inline int index_taken(const index_t *t, size_t slot) { return t->values[slot] != EMPTY; }
static inline size_t index_next(const index_t *t, size_t slot) { return (slot + 1) & (t->room - 1); }
static inline void index_put(index_t *t, size_t slot, uint64_t hash, uint32_t value) {
    t->hashes[slot] = hash;
    t->values[slot] = value;
    t->used++;
}
static inline void index_free(index_t *t) {
    free(t->hashes);
    free(t->values);
}

#endif
