/* The tasks, frames and stacks that samples refer to, each stored once. Included by perfdata.c. */

typedef struct {
    int32_t pid, tid;
    uint32_t thread, process, row;
} task;

typedef struct {
    uint32_t module;
    uint64_t address;
} frame;

typedef struct { /* the stack of a chain in one state of one address space */
    uint32_t chain, version, stack;
} meaning;

typedef struct { /* a word of a chain that was looked up before */
    uint64_t word;
    uint32_t version, frame;
} lookup;

typedef struct { /* a thread when it was last seen: valid until the world changes */
    uint64_t changes;
    int32_t pid, tid;
    uint32_t task, version;
} seat;

enum { LOOKUPS = 1 << 14, SEATS = 1 << 10 };
enum { OF_KERNEL = 0xffffffff }; /* as version: the kernel's addresses are the same in every address space */

typedef struct {
    PyObject *columns[6]; /* of the samples, in time order; their items are below */
    uint64_t *time, *period;
    int32_t *cpu;
    uint32_t *task, *stack;
    uint8_t *event;
    list tasks, frames, meanings, stack_end, stack_frames;
    index_t task_index, frame_index, meaning_index, stack_index;
    list scratch;
    lookup *lookups;
    seat *seats;
} tables;

/* Reserves space for this many samples. */
static int tables_begin(tables *t, size_t rows) {
    static const size_t widths[6] = {8, 4, 4, 4, 1, 8};
    for (size_t i = 0; i < 6; i++) {
        if (!(t->columns[i] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(rows * widths[i]))))
            return -1;
        prefer_huge(PyBytes_AS_STRING(t->columns[i]), rows * widths[i]);
    }
    t->time = (uint64_t *)PyBytes_AS_STRING(t->columns[0]);
    t->cpu = (int32_t *)PyBytes_AS_STRING(t->columns[1]);
    t->task = (uint32_t *)PyBytes_AS_STRING(t->columns[2]);
    t->stack = (uint32_t *)PyBytes_AS_STRING(t->columns[3]);
    t->event = (uint8_t *)PyBytes_AS_STRING(t->columns[4]);
    t->period = (uint64_t *)PyBytes_AS_STRING(t->columns[5]);
    t->lookups = malloc(LOOKUPS * sizeof(lookup));
    t->seats = calloc(SEATS, sizeof(seat));
    if (!t->lookups || !t->seats) {
        PyErr_NoMemory();
        return -1;
    }
    memset(t->lookups, 0xff, LOOKUPS * sizeof(lookup)); /* a marker, which is never looked up */
    return 0;
}

static uint32_t task_of(tables *t, world *w, int32_t pid, int32_t tid) {
    task wanted = {.pid = pid, .tid = tid, .thread = thread_name(w, tid), .process = thread_name(w, pid)};
    wanted.row = process_seen(w, pid)->row;
    if (wanted.process == UNNAMED)
        wanted.process = wanted.thread;
    if (wanted.thread == UNNAMED && (wanted.thread = made_up_name(w, tid)) == EMPTY)
        return EMPTY;
    if (wanted.process == UNNAMED && (wanted.process = made_up_name(w, pid)) == EMPTY)
        return EMPTY;
    uint64_t hash = join(join(secret, (uint64_t)(uint32_t)pid << 32 | (uint32_t)tid),
                         (uint64_t)wanted.thread << 32 | wanted.process);
    hash = join(hash, wanted.row);
    if (index_grow(&t->task_index))
        return EMPTY;
    size_t slot = index_first(&t->task_index, hash);
    for (; index_taken(&t->task_index, slot); slot = index_next(&t->task_index, slot)) {
        const task *known = &ITEM(t->tasks, task, t->task_index.slots[slot].value);
        if (known->pid == pid && known->tid == tid && known->thread == wanted.thread &&
            known->process == wanted.process && known->row == wanted.row)
            return t->task_index.slots[slot].value;
    }
    if (PUSH(t->tasks, task, wanted))
        return EMPTY;
    index_put(&t->task_index, slot, hash, (uint32_t)(t->tasks.used - 1));
    return (uint32_t)(t->tasks.used - 1);
}

static uint32_t frame_of(tables *t, uint32_t module_number, uint64_t address) {
    uint64_t hash = join(join(secret, address), module_number);
    if (index_grow(&t->frame_index))
        return EMPTY;
    size_t slot = index_first(&t->frame_index, hash);
    for (; index_taken(&t->frame_index, slot); slot = index_next(&t->frame_index, slot)) {
        const frame *known = &ITEM(t->frames, frame, t->frame_index.slots[slot].value);
        if (known->address == address && known->module == module_number)
            return t->frame_index.slots[slot].value;
    }
    frame fresh = {.module = module_number, .address = address};
    if (PUSH(t->frames, frame, fresh))
        return EMPTY;
    index_put(&t->frame_index, slot, hash, (uint32_t)(t->frames.used - 1));
    return (uint32_t)(t->frames.used - 1);
}

static uint32_t user_frame(tables *t, const space *s, uint64_t address) {
    uint32_t i = first_ending_after(s, address);
    if (i == s->used || s->maps[i].start > address)
        return frame_of(t, UNKNOWN_MODULE, 0);
    return frame_of(t, s->maps[i].module, address - s->maps[i].start + s->maps[i].page_offset);
}

/* Returns the number of the stack whose frames are in `scratch`, root first. */
static uint32_t keep_stack(tables *t) {
    const uint32_t *frames = t->scratch.items;
    size_t depth = t->scratch.used;
    uint64_t hash = hash_bytes(frames, depth * sizeof(uint32_t));
    if (index_grow(&t->stack_index))
        return EMPTY;
    size_t slot = index_first(&t->stack_index, hash);
    for (; index_taken(&t->stack_index, slot); slot = index_next(&t->stack_index, slot)) {
        if (!index_like(&t->stack_index, slot, hash))
            continue;
        uint32_t number = t->stack_index.slots[slot].value;
        size_t end = ITEM(t->stack_end, uint32_t, number), start = number ? ITEM(t->stack_end, uint32_t, number - 1) : 0;
        if (end - start == depth &&
            (!depth || !memcmp((uint32_t *)t->stack_frames.items + start, frames, depth * sizeof(uint32_t))))
            return number;
    }
    if (list_reserve(&t->stack_frames, depth, sizeof(uint32_t)))
        return EMPTY;
    if (depth)
        memcpy((uint32_t *)t->stack_frames.items + t->stack_frames.used, frames, depth * sizeof(uint32_t));
    t->stack_frames.used += depth;
    if (t->stack_frames.used > UINT32_MAX || PUSH(t->stack_end, uint32_t, (uint32_t)t->stack_frames.used)) {
        if (!PyErr_Occurred())
            refuse(PyUnicode_FromString("more stack frames than fit into one segment"), 0);
        return EMPTY;
    }
    index_put(&t->stack_index, slot, hash, (uint32_t)(t->stack_end.used - 1));
    return (uint32_t)(t->stack_end.used - 1);
}

static uint32_t resolve_word(tables *t, const space *s, uint64_t word, int mode) {
    if (mode != MODE_KERNEL && mode != MODE_USER)
        return frame_of(t, UNKNOWN_MODULE, 0);
    uint32_t version = mode == MODE_KERNEL ? OF_KERNEL : s->version;
    lookup *last = &t->lookups[product(word ^ keys[1], version ^ keys[2]) % LOOKUPS];
    if (last->word == word && last->version == version)
        return last->frame;
    uint32_t number = mode == MODE_KERNEL ? frame_of(t, KERNEL_MODULE, word) : user_frame(t, s, word);
    if (number != EMPTY)
        *last = (lookup){.word = word, .version = version, .frame = number};
    return number;
}

static uint32_t resolve_chain(tables *t, const space *s, const chain *c, const uint8_t *words) {
    int mode = c->mode;
    t->scratch.used = 0;
    if (list_reserve(&t->scratch, c->depth, sizeof(uint32_t)))
        return EMPTY;
    /* Numbered leaf first; stored root first. */
    uint32_t *frames = t->scratch.items;
    size_t n = 0;
    for (size_t i = 0; i < c->depth; i++) {
        uint64_t word = u64_at(words + 8 * i);
        if (word >= CONTEXT_LIMIT)
            mode = mode_after(word);
        else if ((frames[n++] = resolve_word(t, s, word, mode)) == EMPTY)
            return EMPTY;
    }
    for (size_t i = 0; i < n / 2; i++) {
        uint32_t other = frames[i];
        frames[i] = frames[n - 1 - i];
        frames[n - 1 - i] = other;
    }
    t->scratch.used = n;
    return keep_stack(t);
}

/* Returns the current state of a sample's thread. */
static const seat *seat_of(tables *t, world *w, int32_t pid, int32_t tid) {
    seat *s = &t->seats[(uint32_t)tid % SEATS];
    if (s->task != EMPTY && s->changes == w->changes && s->pid == pid && s->tid == tid)
        return s;
    *s = (seat){.changes = w->changes, .pid = pid, .tid = tid, .version = space_seen(w, pid)->version};
    return (s->task = task_of(t, w, pid, tid)) == EMPTY ? NULL : s;
}

/* Returns a chain's stack in this state of an address space; stores `stack` if there was none. */
static const meaning *remember(tables *t, uint32_t chain_number, uint32_t version, uint32_t stack) {
    uint64_t hash = product(chain_number ^ keys[1], version ^ keys[2]);
    if (index_grow(&t->meaning_index))
        return NULL;
    size_t slot = index_first(&t->meaning_index, hash);
    for (; index_taken(&t->meaning_index, slot); slot = index_next(&t->meaning_index, slot)) {
        const meaning *known = &ITEM(t->meanings, meaning, t->meaning_index.slots[slot].value);
        if (known->chain == chain_number && known->version == version)
            return known;
    }
    meaning fresh = {.chain = chain_number, .version = version, .stack = stack};
    if (PUSH(t->meanings, meaning, fresh))
        return NULL;
    index_put(&t->meaning_index, slot, hash, (uint32_t)(t->meanings.used - 1));
    return &ITEM(t->meanings, meaning, t->meanings.used - 1);
}

/* Returns the number of a sample's stack. Most chains were seen before in the same state of the same
 * address space: those cost one lookup. */
static uint32_t stack_of(tables *t, const world *w, chains *c, uint32_t number, const seat *who) {
    chain *wanted = &ITEM(c->known, chain, number);
    uint32_t version = wanted->user ? who->version : 0;
    if (wanted->stack != EMPTY && wanted->version == version)
        return wanted->stack;
    const uint8_t *words = (const uint8_t *)c->words.items + wanted->at;
    if (wanted->stack == EMPTY) {
        wanted->version = version;
        return wanted->stack = resolve_chain(t, space_seen(w, who->pid), wanted, words);
    }
    /* Seen before in another space: forked processes have the same addresses. */
    if (!wanted->listed && !remember(t, number, wanted->version, wanted->stack))
        return EMPTY;
    wanted->listed = 1;
    const meaning *known = remember(t, number, version, EMPTY);
    if (!known)
        return EMPTY;
    uint32_t stack = known->stack;
    if (stack == EMPTY) {
        size_t place = (size_t)(known - (meaning *)t->meanings.items);
        stack = resolve_chain(t, space_seen(w, who->pid), wanted, words);
        ITEM(t->meanings, meaning, place).stack = stack;
    }
    wanted->version = version;
    return wanted->stack = stack;
}

/* Returns one field of all items as a bytes object. */
static PyObject *column(const list *l, size_t width, size_t at, size_t size) {
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(l->used * size));
    for (size_t i = 0; bytes && i < l->used; i++)
        memcpy(PyBytes_AS_STRING(bytes) + i * size, (const char *)l->items + i * width + at, size);
    return bytes;
}

#define COLUMN(l, type, field) column(&(l), sizeof(type), offsetof(type, field), sizeof(((type *)0)->field))

/* Takes the references to `strings` and `modules`, which may be NULL with an exception set. */
static PyObject *tables_result(const tables *t, const world *w, PyObject *strings, PyObject *modules, uint64_t lost) {
    return Py_BuildValue(
        "((OOOOOO)(NNNNN)(NN)(NN)NN(NNNNNNN)K)", t->columns[0], t->columns[1], t->columns[2], t->columns[3],
        t->columns[4], t->columns[5], COLUMN(t->tasks, task, pid), COLUMN(t->tasks, task, tid),
        COLUMN(t->tasks, task, thread), COLUMN(t->tasks, task, process), COLUMN(t->tasks, task, row),
        list_bytes(&t->stack_end, 4), list_bytes(&t->stack_frames, 4), COLUMN(t->frames, frame, module),
        COLUMN(t->frames, frame, address), strings, modules, COLUMN(w->rows, process_row, pid),
        COLUMN(w->rows, process_row, parent), COLUMN(w->rows, process_row, start), COLUMN(w->rows, process_row, end),
        COLUMN(w->rows, process_row, name), COLUMN(w->rows, process_row, executable), COLUMN(w->rows, process_row, execed),
        (unsigned long long)lost);
}

static void tables_free(tables *t) {
    list *lists[] = {&t->tasks, &t->frames, &t->meanings, &t->stack_end, &t->stack_frames, &t->scratch};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        free(lists[i]->items);
    for (size_t i = 0; i < 6; i++)
        Py_XDECREF(t->columns[i]);
    free(t->lookups);
    free(t->seats);
    index_free(&t->task_index);
    index_free(&t->frame_index);
    index_free(&t->meaning_index);
    index_free(&t->stack_index);
}
