/* Side-band records: forks, names, mapped files. Included by perfdata.c. */

static int starts_with(const char *text, size_t length, const char *prefix) {
    size_t n = strlen(prefix);
    return length >= n && !memcmp(text, prefix, n);
}

/* Memory without a file: its names come from the JIT's /tmp/perf-PID.map, by address. */
static int is_anonymous(const char *name, size_t length) {
    static const char *const prefixes[] = {"//anon", "/dev/zero", "/anon_hugepage", "[heap]", "[stack", "/SYSV", "/memfd:"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (starts_with(name, length, prefixes[i]))
            return 1;
    return 0;
}

static int on_mmap(world *w, const uint8_t *record, size_t size, uint64_t time) {
    int second = u32_at(record) == RECORD_MMAP2;
    uint16_t misc = u16_at(record + 4);
    int32_t pid = (int32_t)u32_at(record + 8);
    if (pid < 0 || (misc & MODE_MASK) == MODE_KERNEL)
        return 0;
    if (second ? !(u32_at(record + 64) & 4) : misc & MISC_DATA)
        return 0; /* not executable */
    uint64_t start = u64_at(record + 16), length = u64_at(record + 24);
    if (!length || start + length < start)
        return 0;
    mapping fresh = {.start = start, .end = start + length, .page_offset = u64_at(record + 32)};
    size_t at = second ? 72 : 40;
    const char *name = (const char *)record + at;
    size_t name_length = strnlen(name, size - at);
    module wanted = {.pid = pid};
    char jit[40];
    int anonymous = is_anonymous(name, name_length);
    if (anonymous) {
        name_length = (size_t)snprintf(jit, sizeof jit, "/tmp/perf-%d.map", (int)pid);
        name = jit;
        fresh.page_offset = start;
    } else if (second && w->build_ids && misc & MISC_BUILD_ID) {
        wanted.build_id_size = record[40] > 20 ? 20 : record[40];
        memcpy(wanted.build_id, record + 44, wanted.build_id_size);
    } else if (second) {
        wanted.device = u64_at(record + 40);
        wanted.inode = u64_at(record + 48);
    }
    wanted.name = intern(w, name, name_length);
    if (wanted.name == EMPTY || (fresh.module = module_of(w, wanted)) == EMPTY)
        return -1;
    process *p = process_of(w, pid);
    if (p && !anonymous && starts_with(name, name_length, "/"))
        map_row(w, p, wanted.name, time);
    space *s = p ? own_space(w, p) : NULL;
    if (!s || map_over(w, s, fresh))
        return -1;
    if (w->mappings > w->forget_above)
        forget_exited(w);
    return 0;
}

static int on_fork(world *w, const uint8_t *record, uint64_t time) {
    int32_t pid = (int32_t)u32_at(record + 8), parent = (int32_t)u32_at(record + 12);
    int32_t tid = (int32_t)u32_at(record + 16), parent_tid = (int32_t)u32_at(record + 20);
    thread *from = thread_of(w, parent_tid);
    if (!from)
        return -1;
    uint32_t name = from->name;
    thread *to = thread_of(w, tid);
    if (!to)
        return -1;
    to->name = name;
    if (pid == parent)
        return 0;
    int listed = u16_at(record + 4) & MISC_FORK_EXEC; /* perf's own record of a process that existed before */
    if (fork_row(w, pid, parent, time, !listed))
        return -1;
    if (listed)
        return forget_space(w, pid);
    process *source = process_of(w, parent);
    uint32_t shared = source ? space_of(w, source) : EMPTY;
    process *child = shared == EMPTY ? NULL : process_of(w, pid);
    if (!child)
        return -1;
    child->exited = 0;
    if (child->space == shared)
        return 0;
    if (child->space != EMPTY)
        disown(w, child->space);
    child->space = shared;
    ITEM(w->spaces, space, shared).owners++;
    return 0;
}

static int on_side(world *w, const uint8_t *record, size_t size, uint64_t time) {
    switch (u32_at(record)) {
    case RECORD_COMM: {
        int32_t pid = (int32_t)u32_at(record + 8), tid = (int32_t)u32_at(record + 12);
        uint32_t name = intern(w, (const char *)record + 16, strnlen((const char *)record + 16, size - 16));
        thread *t = name == EMPTY ? NULL : thread_of(w, tid);
        if (!t)
            return -1;
        t->name = name;
        uint64_t execed = u16_at(record + 4) & MISC_COMM_EXEC ? (time ? time : 1) : 0;
        return pid == tid ? rename_row(w, pid, name, execed) : 0;
    }
    case RECORD_FORK:
        return on_fork(w, record, time);
    case RECORD_EXIT: {
        int32_t pid = (int32_t)u32_at(record + 8), tid = (int32_t)u32_at(record + 16);
        process *p = process_of(w, pid);
        if (!p)
            return -1;
        p->exited |= pid == tid;
        exit_row(w, p, pid == tid, time);
        return 0;
    }
    default:
        return on_mmap(w, record, size, time);
    }
}
