/* Reads little-endian integers at any alignment, and raises Python errors. */
#ifndef OVERNIGHT_BYTES_H
#define OVERNIGHT_BYTES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

enum { HUGE_PAGE = 2 << 20, LARGE = 4 << 20 };

/* Requests huge pages: faults of small ones took a quarter of the time (measured). */
static inline void prefer_huge(void *memory, size_t size) {
    uintptr_t first = ((uintptr_t)memory + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uintptr_t last = ((uintptr_t)memory + size) / HUGE_PAGE * HUGE_PAGE;
    if (first < last)
        (void)madvise((void *)first, last - first, MADV_HUGEPAGE); /* optional: without them it is only slower */
}

static inline void *allocate(size_t size) {
    if (size < LARGE)
        return malloc(size);
    void *memory = NULL;
    if (posix_memalign(&memory, HUGE_PAGE, size))
        return NULL;
    prefer_huge(memory, size);
    return memory;
}

/* A growing array; returns 0, or -1 with MemoryError set. */
typedef struct {
    void *items;
    size_t used, room;
} list;

static inline int list_resize(list *l, size_t room, size_t width) {
    int large = room * width >= LARGE;
    void *items = large ? allocate(room * width) : realloc(l->items, room * width);
    if (!items) {
        PyErr_NoMemory();
        return -1;
    }
    if (large) {
        if (l->used)
            memcpy(items, l->items, l->used * width);
        free(l->items);
    }
    l->items = items;
    l->room = room;
    return 0;
}

static inline int list_reserve(list *l, size_t more, size_t width) {
    if (l->used + more <= l->room)
        return 0;
    size_t room = l->room ? l->room * 2 : 256;
    while (room < l->used + more)
        room *= 2;
    return list_resize(l, room, width);
}

#define ITEM(l, type, i) (((type *)(l).items)[i])
#define PUSH(l, type, value) (list_reserve(&(l), 1, sizeof(type)) ? -1 : (ITEM(l, type, (l).used++) = (value), 0))

static inline int list_append(list *l, const void *bytes, size_t count) {
    if (list_reserve(l, count, 1))
        return -1;
    if (count)
        memcpy((uint8_t *)l->items + l->used, bytes, count);
    l->used += count;
    return 0;
}

/* Returns the list's items as a bytes object. */
static inline PyObject *list_bytes(const list *l, size_t width) {
    return PyBytes_FromStringAndSize(l->used ? l->items : "", (Py_ssize_t)(l->used * width));
}

/* Open addressing, power-of-two sizes: half a hash -> u32 index into a table with the keys. Both are
 * adjacent, so that a lookup costs one cache line. */
typedef struct {
    uint32_t tag, value; /* EMPTY as value: the slot is free */
} slot_t;

typedef struct {
    slot_t *slots;
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

/* The seed of all hashes, so that nobody can craft a file with collisions. Set once; never in the output. */
static uint64_t secret, keys[3];

static inline void choose_secret(void) {
    if (getrandom(&secret, sizeof secret, GRND_NONBLOCK) != (ssize_t)sizeof secret)
        secret = mix((uintptr_t)&secret); /* early in boot: the load address is random, too */
    for (uint64_t i = 0; i < 3; i++)
        keys[i] = mix(secret + (i + 1) * 0x9e3779b97f4a7c15ull);
}

/* Folds both halves of a product. */
static inline uint64_t product(uint64_t a, uint64_t b) {
#ifdef __SIZEOF_INT128__
    unsigned __int128 whole = (unsigned __int128)a * b;
    return (uint64_t)whole ^ (uint64_t)(whole >> 64);
#else
    return mix(a ^ mix(b));
#endif
}

/* Adds one word to a hash, or to `secret`. Needs a full mix: with only a multiplication, flipping the top
 * bit of one word and certain bits of the next cancels out. */
static inline uint64_t join(uint64_t hash, uint64_t word) { return mix(hash ^ word); }

/* Hashes bytes. Two sums in parallel, so that the processor does not wait for one product before the next;
 * each word is combined with a key before it is multiplied. */
static inline uint64_t hash_bytes(const void *bytes, size_t length) {
    const uint8_t *p = bytes;
    uint64_t x = secret ^ length, y = keys[0];
    for (; length >= 32; p += 32, length -= 32) {
        x = product(u64_at(p) ^ keys[1], u64_at(p + 8) ^ x);
        y = product(u64_at(p + 16) ^ keys[2], u64_at(p + 24) ^ y);
    }
    for (; length >= 8; p += 8, length -= 8)
        x = product(u64_at(p) ^ keys[1], x ^ keys[2]);
    if (length) {
        uint64_t word = 0;
        memcpy(&word, p, length);
        y = product(word ^ keys[1], y ^ keys[2]);
    }
    return product(x ^ keys[0], y ^ secret);
}

static inline int index_grow(index_t *t) {
    if (t->used * 2 < t->room)
        return 0;
    index_t bigger = {.room = t->room ? t->room * 2 : 1024, .used = t->used};
    bigger.slots = allocate(bigger.room * sizeof(slot_t));
    if (!bigger.slots) {
        PyErr_NoMemory();
        return -1;
    }
    memset(bigger.slots, 0xff, bigger.room * sizeof(slot_t));
    for (size_t i = 0; i < t->room; i++) {
        if (t->slots[i].value == EMPTY)
            continue;
        size_t slot = t->slots[i].tag & (bigger.room - 1);
        while (bigger.slots[slot].value != EMPTY)
            slot = (slot + 1) & (bigger.room - 1);
        bigger.slots[slot] = t->slots[i];
    }
    free(t->slots);
    *t = bigger;
    return 0;
}

/* Visits the slots of a hash: `for (slot = index_first(t, h); index_taken(t, slot); slot = index_next(t, slot))`. */
static inline size_t index_first(const index_t *t, uint64_t hash) { return (uint32_t)hash & (t->room - 1); }
static inline int index_taken(const index_t *t, size_t slot) { return t->slots[slot].value != EMPTY; }
static inline size_t index_next(const index_t *t, size_t slot) { return (slot + 1) & (t->room - 1); }
static inline int index_like(const index_t *t, size_t slot, uint64_t hash) { return t->slots[slot].tag == (uint32_t)hash; }
static inline void index_put(index_t *t, size_t slot, uint64_t hash, uint32_t value) {
    t->slots[slot] = (slot_t){.tag = (uint32_t)hash, .value = value};
    t->used++;
}
static inline void index_free(index_t *t) { free(t->slots); }

#endif
