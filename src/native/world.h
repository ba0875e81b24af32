/* The processes and their mappings over time, built from side-band records. */
#ifndef OVERNIGHT_WORLD_H
#define OVERNIGHT_WORLD_H

#include "bytes.h"

enum { KERNEL_MODULE = 0, UNKNOWN_MODULE = 1 };
enum { UNNAMED = 0xffffffff };

/* A hostile file may have endless mappings: real processes have hundreds of executable ones. */
enum { MAPPINGS_A_PROCESS = 1 << 14, MAPPINGS_SOFT = 1 << 20, MAPPINGS_HARD = 1 << 23 };
/* And endless forks: a night of builds has 10 million forks of processes with 20 mappings each. */
enum { MAPPINGS_COPIED = 1 << 28, ROWS_LIMIT = 1 << 20 };

typedef struct {
    uint64_t start, end, page_offset;
    uint32_t module;
} mapping;

typedef struct {
    mapping *maps;
    uint32_t used, room, owners, version;
} space; /* an address space; shared after fork until one side maps something */

typedef struct {
    int32_t tid;
    uint32_t name;
} thread;

typedef struct {
    int32_t pid;
    uint32_t space; /* EMPTY: none yet */
    uint32_t row;   /* of the process that has this pid now; EMPTY: none */
    int exited;
} process;

typedef struct { /* a process from its fork to its exit: process_table.h */
    uint64_t start, end, execed;
    int32_t pid;
    uint32_t parent, name, executable;
    uint8_t exited;
} process_row;

typedef struct {
    uint32_t name; /* string */
    int32_t pid;   /* a process that maps it: the path is valid in its mount namespace */
    uint8_t build_id_size, build_id[20];
    uint64_t device, inode;
} module;

typedef struct {
    list text, text_end;           /* strings: all bytes, and where each ends */
    list modules, spaces, threads, processes, rows;
    index_t string_index, module_index, thread_index, process_index;
    size_t mappings, forget_above, copied;
    uint32_t versions;
    int build_ids; /* an event of this recording asks for them */
    uint64_t changes; /* number of changes to any of this */
} world;

static const char *string_at(const world *w, uint32_t i, size_t *length) {
    size_t start = i ? ITEM(w->text_end, size_t, i - 1) : 0;
    *length = ITEM(w->text_end, size_t, i) - start;
    return (const char *)w->text.items + start;
}

/* Returns the number of a string, or EMPTY with an exception set. */
static uint32_t intern(world *w, const char *text, size_t length) {
    uint64_t hash = hash_bytes(text, length);
    if (index_grow(&w->string_index))
        return EMPTY;
    size_t slot = index_first(&w->string_index, hash);
    for (; index_taken(&w->string_index, slot); slot = index_next(&w->string_index, slot)) {
        size_t known;
        const char *at = string_at(w, w->string_index.slots[slot].value, &known);
        if (index_like(&w->string_index, slot, hash) && known == length && !memcmp(at, text, length))
            return w->string_index.slots[slot].value;
    }
    if (list_reserve(&w->text, length, 1))
        return EMPTY;
    memcpy((char *)w->text.items + w->text.used, text, length);
    w->text.used += length;
    uint32_t number = (uint32_t)w->text_end.used;
    if (PUSH(w->text_end, size_t, w->text.used))
        return EMPTY;
    index_put(&w->string_index, slot, hash, number);
    return number;
}

/* ":123", perf's name for a thread without a known name. Its children do not inherit it. */
static uint32_t made_up_name(world *w, int32_t tid) {
    char text[16];
    return intern(w, text, (size_t)snprintf(text, sizeof text, ":%d", (int)tid));
}

static thread *thread_of(world *w, int32_t tid) {
    uint64_t hash = join(secret, (uint32_t)tid);
    if (index_grow(&w->thread_index))
        return NULL;
    size_t slot = index_first(&w->thread_index, hash);
    for (; index_taken(&w->thread_index, slot); slot = index_next(&w->thread_index, slot)) {
        thread *known = &ITEM(w->threads, thread, w->thread_index.slots[slot].value);
        if (known->tid == tid)
            return known;
    }
    thread fresh = {.tid = tid, .name = UNNAMED};
    if (PUSH(w->threads, thread, fresh))
        return NULL;
    index_put(&w->thread_index, slot, hash, (uint32_t)(w->threads.used - 1));
    return &ITEM(w->threads, thread, w->threads.used - 1);
}

/* Returns the name of a thread, or UNNAMED; does not add the thread. */
static uint32_t thread_name(const world *w, int32_t tid) {
    const index_t *index = &w->thread_index;
    for (size_t slot = index_first(index, join(secret, (uint32_t)tid)); index_taken(index, slot);
         slot = index_next(index, slot)) {
        const thread *known = &ITEM(w->threads, thread, index->slots[slot].value);
        if (known->tid == tid)
            return known->name;
    }
    return UNNAMED;
}

static process *process_of(world *w, int32_t pid) {
    uint64_t hash = join(secret, (uint32_t)pid);
    if (index_grow(&w->process_index))
        return NULL;
    size_t slot = index_first(&w->process_index, hash);
    for (; index_taken(&w->process_index, slot); slot = index_next(&w->process_index, slot)) {
        process *known = &ITEM(w->processes, process, w->process_index.slots[slot].value);
        if (known->pid == pid)
            return known;
    }
    process fresh = {.pid = pid, .space = EMPTY, .row = EMPTY};
    if (PUSH(w->processes, process, fresh))
        return NULL;
    index_put(&w->process_index, slot, hash, (uint32_t)(w->processes.used - 1));
    return &ITEM(w->processes, process, w->processes.used - 1);
}

/* Returns the number of a module, or EMPTY with an exception set. Two containers may have different
 * binaries under one path: device and inode, or the build id, distinguish them. */
static uint32_t module_of(world *w, module wanted) {
    uint64_t hash = join(join(join(secret, wanted.name), wanted.device), wanted.inode);
    for (int i = 0; i < wanted.build_id_size; i++)
        hash = join(hash, wanted.build_id[i]);
    if (index_grow(&w->module_index))
        return EMPTY;
    size_t slot = index_first(&w->module_index, hash);
    for (; index_taken(&w->module_index, slot); slot = index_next(&w->module_index, slot)) {
        uint32_t number = w->module_index.slots[slot].value;
        const module *known = &ITEM(w->modules, module, number);
        if (known->name == wanted.name && known->device == wanted.device && known->inode == wanted.inode &&
            known->build_id_size == wanted.build_id_size &&
            !memcmp(known->build_id, wanted.build_id, wanted.build_id_size))
            return number;
    }
    if (PUSH(w->modules, module, wanted))
        return EMPTY;
    index_put(&w->module_index, slot, hash, (uint32_t)(w->modules.used - 1));
    return (uint32_t)(w->modules.used - 1);
}

static uint32_t new_space(world *w) {
    space fresh = {.owners = 1, .version = ++w->versions};
    return PUSH(w->spaces, space, fresh) ? EMPTY : (uint32_t)(w->spaces.used - 1);
}

static void disown(world *w, uint32_t number) {
    space *s = &ITEM(w->spaces, space, number);
    if (--s->owners)
        return;
    w->mappings -= s->used;
    free(s->maps);
    s->maps = NULL;
    s->used = s->room = 0;
}

/* Returns a process, or one without anything; does not add it. */
static const process *process_seen(const world *w, int32_t pid) {
    static const process nothing = {.space = EMPTY, .row = EMPTY};
    const index_t *index = &w->process_index;
    for (size_t slot = index_first(index, join(secret, (uint32_t)pid)); index_taken(index, slot);
         slot = index_next(index, slot)) {
        const process *known = &ITEM(w->processes, process, index->slots[slot].value);
        if (known->pid == pid)
            return known;
    }
    return &nothing;
}

/* Returns the address space of a process's sample; an empty one where it is unknown. */
static const space *space_seen(const world *w, int32_t pid) {
    static const space nothing;
    uint32_t number = process_seen(w, pid)->space;
    return number == EMPTY ? &nothing : &ITEM(w->spaces, space, number);
}

/* Returns a process's address space to share, creating it if needed; EMPTY with an exception set. */
static uint32_t space_of(world *w, process *p) {
    if (p->space == EMPTY)
        p->space = new_space(w);
    return p->space;
}

/* Returns the address space for writing: a copy where it was shared since a fork. */
static space *own_space(world *w, process *p) {
    uint32_t number = space_of(w, p);
    if (number == EMPTY)
        return NULL;
    if (ITEM(w->spaces, space, number).owners > 1) {
        uint32_t copy = new_space(w);
        if (copy == EMPTY)
            return NULL;
        space *from = &ITEM(w->spaces, space, number), *to = &ITEM(w->spaces, space, copy);
        to->maps = malloc((from->used + 1u) * sizeof(mapping));
        if (!to->maps) {
            PyErr_NoMemory();
            return NULL;
        }
        if (from->used)
            memcpy(to->maps, from->maps, from->used * sizeof(mapping));
        to->used = from->used;
        to->room = from->used + 1u;
        w->mappings += to->used;
        w->copied += to->used;
        from->owners--;
        p->space = number = copy;
    }
    return &ITEM(w->spaces, space, number);
}

/* Drops the mappings of processes that have ended, when there are too many. The next time is at twice as
 * many: checking every process for each mapping would take minutes. */
static void forget_exited(world *w) {
    for (size_t i = 0; i < w->processes.used; i++) {
        process *p = &ITEM(w->processes, process, i);
        if (p->exited && p->space != EMPTY) {
            disown(w, p->space);
            p->space = EMPTY;
        }
    }
    w->forget_above = w->mappings > MAPPINGS_SOFT / 2 ? w->mappings * 2 : MAPPINGS_SOFT;
}

/* A process without anything from its parent: it began with an exec. */
static int forget_space(world *w, int32_t pid) {
    process *p = process_of(w, pid);
    if (!p)
        return -1;
    p->exited = 0;
    if (p->space != EMPTY)
        disown(w, p->space);
    p->space = EMPTY;
    return 0;
}

static uint32_t first_ending_after(const space *s, uint64_t address) {
    uint32_t low = 0, high = s->used;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->maps[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Replaces the mapped range; parts of older mappings outside it stay. */
static int map_over(world *w, space *s, mapping fresh) {
    uint32_t first = first_ending_after(s, fresh.start), last = first;
    while (last < s->used && s->maps[last].start < fresh.end)
        last++;
    mapping keep[3];
    uint32_t kept = 0;
    if (first < last && s->maps[first].start < fresh.start) {
        keep[kept] = s->maps[first];
        keep[kept++].end = fresh.start;
    }
    keep[kept++] = fresh;
    if (first < last && s->maps[last - 1].end > fresh.end) {
        mapping right = s->maps[last - 1];
        right.page_offset += fresh.end - right.start;
        right.start = fresh.end;
        keep[kept++] = right;
    }
    uint32_t after = s->used - (last - first) + kept;
    if (after > MAPPINGS_A_PROCESS)
        return 0; /* more than any real process has: its frames stay unknown */
    if (after > s->room) {
        uint32_t room = after * 2;
        mapping *maps = realloc(s->maps, room * sizeof(mapping));
        if (!maps) {
            PyErr_NoMemory();
            return -1;
        }
        s->maps = maps;
        s->room = room;
    }
    memmove(s->maps + first + kept, s->maps + last, (s->used - last) * sizeof(mapping));
    memcpy(s->maps + first, keep, kept * sizeof(mapping));
    w->mappings += after;
    w->mappings -= s->used;
    s->used = after;
    s->version = ++w->versions;
    return 0;
}

static void world_free(world *w) {
    for (size_t i = 0; i < w->spaces.used; i++)
        free(ITEM(w->spaces, space, i).maps);
    list *lists[] = {&w->text, &w->text_end, &w->modules, &w->spaces, &w->threads, &w->processes, &w->rows};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        free(lists[i]->items);
    index_free(&w->string_index);
    index_free(&w->module_index);
    index_free(&w->thread_index);
    index_free(&w->process_index);
}

#endif
