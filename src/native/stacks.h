/* What the samples point into: tasks, frames and stacks, each kept once. Included by perfdata.c. */

typedef struct {
    int32_t pid, tid;
    uint32_t thread, process;
} task;

typedef struct {
    uint32_t module;
    uint64_t address;
} frame;

typedef struct { /* a call chain as the kernel wrote it, in one state of one address space */
    const uint8_t *words;
    size_t depth;
    uint32_t version, stack;
    uint8_t mode;
} chain;

typedef struct {
    list time, cpu, task, stack, event, period; /* a column each, in time order */
    list tasks, frames, chains, stack_end, stack_frames;
    index_t task_index, frame_index, chain_index, stack_index;
    list scratch;
} tables;

/* ":123", as perf names a thread whose name nobody said. Its children do not inherit that. */
static uint32_t made_up_name(world *w, int32_t tid) {
    char text[16];
    return intern(w, text, (size_t)snprintf(text, sizeof text, ":%d", (int)tid));
}

static uint32_t task_of(tables *t, world *w, int32_t pid, int32_t tid) {
    task wanted = {.pid = pid, .tid = tid, .thread = thread_name(w, tid), .process = thread_name(w, pid)};
    if (wanted.process == UNNAMED)
        wanted.process = wanted.thread;
    if (wanted.thread == UNNAMED && (wanted.thread = made_up_name(w, tid)) == EMPTY)
        return EMPTY;
    if (wanted.process == UNNAMED && (wanted.process = made_up_name(w, pid)) == EMPTY)
        return EMPTY;
    uint64_t hash = join(join(secret, (uint64_t)(uint32_t)pid << 32 | (uint32_t)tid),
                         (uint64_t)wanted.thread << 32 | wanted.process);
    if (index_grow(&t->task_index))
        return EMPTY;
    size_t slot = index_first(&t->task_index, hash);
    for (; index_taken(&t->task_index, slot); slot = index_next(&t->task_index, slot)) {
        const task *known = &ITEM(t->tasks, task, t->task_index.values[slot]);
        if (known->pid == pid && known->tid == tid && known->thread == wanted.thread && known->process == wanted.process)
            return t->task_index.values[slot];
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
        const frame *known = &ITEM(t->frames, frame, t->frame_index.values[slot]);
        if (known->address == address && known->module == module_number)
            return t->frame_index.values[slot];
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

/* The number of the stack whose frames lie in `scratch`, leaf first; stored root first. */
static uint32_t keep_stack(tables *t) {
    const uint32_t *leaf_first = t->scratch.items;
    size_t depth = t->scratch.used;
    uint64_t hash = join(secret, depth);
    for (size_t i = 0; i < depth; i++)
        hash = join(hash, leaf_first[i]);
    if (index_grow(&t->stack_index))
        return EMPTY;
    size_t slot = index_first(&t->stack_index, hash);
    for (; index_taken(&t->stack_index, slot); slot = index_next(&t->stack_index, slot)) {
        uint32_t number = t->stack_index.values[slot];
        size_t end = ITEM(t->stack_end, uint32_t, number), start = number ? ITEM(t->stack_end, uint32_t, number - 1) : 0;
        const uint32_t *known = (uint32_t *)t->stack_frames.items + start;
        size_t same = 0;
        if (t->stack_index.hashes[slot] == hash && end - start == depth)
            while (same < depth && known[same] == leaf_first[depth - 1 - same])
                same++;
        if (end - start == depth && same == depth)
            return number;
    }
    if (list_reserve(&t->stack_frames, depth, sizeof(uint32_t)))
        return EMPTY;
    for (size_t i = depth; i > 0; i--)
        ITEM(t->stack_frames, uint32_t, t->stack_frames.used++) = leaf_first[i - 1];
    if (t->stack_frames.used > UINT32_MAX || PUSH(t->stack_end, uint32_t, (uint32_t)t->stack_frames.used)) {
        if (!PyErr_Occurred())
            refuse(PyUnicode_FromString("more stack frames than fit into one segment"), 0);
        return EMPTY;
    }
    index_put(&t->stack_index, slot, hash, (uint32_t)(t->stack_end.used - 1));
    return (uint32_t)(t->stack_end.used - 1);
}

static uint32_t resolve_chain(tables *t, const space *s, const chain *c) {
    int mode = c->mode;
    t->scratch.used = 0;
    for (size_t i = 0; i < c->depth; i++) {
        uint64_t word = u64_at(c->words + 8 * i);
        if (word >= CONTEXT_LIMIT) {
            mode = word == CONTEXT_KERNEL ? MODE_KERNEL : word == CONTEXT_USER ? MODE_USER : 0;
            continue;
        }
        uint32_t number = mode == MODE_KERNEL ? frame_of(t, KERNEL_MODULE, word)
                          : mode == MODE_USER ? user_frame(t, s, word)
                                              : frame_of(t, UNKNOWN_MODULE, 0);
        if (number == EMPTY || PUSH(t->scratch, uint32_t, number))
            return EMPTY;
    }
    return keep_stack(t);
}

/* The number of a sample's stack. Most chains were seen before, word for word: those cost one look. */
static uint32_t stack_of(tables *t, const world *w, const sample *s, uint8_t mode) {
    const space *where = space_seen(w, s->pid);
    uint8_t ip[8];
    chain wanted = {.words = s->chain, .depth = s->depth, .version = where->version, .mode = mode};
    if (!s->chain) { /* recorded without call chains: the address alone, which is not in the stream as a chain */
        memcpy(ip, &s->ip, 8);
        wanted.words = ip;
        wanted.depth = 1;
        return resolve_chain(t, where, &wanted);
    }
    uint64_t hash = join(secret, (uint64_t)mode << 32 | wanted.version);
    for (size_t i = 0; i < wanted.depth; i++)
        hash = join(hash, u64_at(wanted.words + 8 * i));
    if (index_grow(&t->chain_index))
        return EMPTY;
    size_t slot = index_first(&t->chain_index, hash);
    for (; index_taken(&t->chain_index, slot); slot = index_next(&t->chain_index, slot)) {
        if (t->chain_index.hashes[slot] != hash)
            continue;
        const chain *known = &ITEM(t->chains, chain, t->chain_index.values[slot]);
        if (known->version == wanted.version && known->mode == mode && known->depth == wanted.depth &&
            !memcmp(known->words, wanted.words, 8 * wanted.depth))
            return known->stack;
    }
    wanted.stack = resolve_chain(t, where, &wanted);
    if (wanted.stack == EMPTY || PUSH(t->chains, chain, wanted))
        return EMPTY;
    index_put(&t->chain_index, slot, hash, (uint32_t)(t->chains.used - 1));
    return wanted.stack;
}

static PyObject *tables_result(const tables *t, PyObject *strings, PyObject *modules, uint64_t lost) {
    list pid = {0}, tid = {0}, threads = {0}, processes = {0}, owner = {0}, address = {0};
    int failed = 0;
    for (size_t i = 0; i < t->tasks.used && !failed; i++) {
        const task *k = &ITEM(t->tasks, task, i);
        failed = PUSH(pid, int32_t, k->pid) || PUSH(tid, int32_t, k->tid) || PUSH(threads, uint32_t, k->thread) ||
                 PUSH(processes, uint32_t, k->process);
    }
    for (size_t i = 0; i < t->frames.used && !failed; i++) {
        const frame *f = &ITEM(t->frames, frame, i);
        failed = PUSH(owner, uint32_t, f->module) || PUSH(address, uint64_t, f->address);
    }
    PyObject *result = NULL;
    if (!failed && strings && modules)
        result = Py_BuildValue("((NNNNNN)(NNNN)(NN)(NN)OOK)", list_bytes(&t->time, 8), list_bytes(&t->cpu, 4),
                               list_bytes(&t->task, 4), list_bytes(&t->stack, 4), list_bytes(&t->event, 1),
                               list_bytes(&t->period, 8), list_bytes(&pid, 4), list_bytes(&tid, 4),
                               list_bytes(&threads, 4), list_bytes(&processes, 4), list_bytes(&t->stack_end, 4),
                               list_bytes(&t->stack_frames, 4), list_bytes(&owner, 4), list_bytes(&address, 8), strings,
                               modules, (unsigned long long)lost);
    list *own[] = {&pid, &tid, &threads, &processes, &owner, &address};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        free(own[i]->items);
    Py_XDECREF(strings);
    Py_XDECREF(modules);
    return result;
}

static void tables_free(tables *t) {
    list *lists[] = {&t->time, &t->cpu, &t->task, &t->stack, &t->event, &t->period, &t->tasks,
                     &t->frames, &t->chains, &t->stack_end, &t->stack_frames, &t->scratch};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        free(lists[i]->items);
    index_free(&t->task_index);
    index_free(&t->frame_index);
    index_free(&t->chain_index);
    index_free(&t->stack_index);
}
