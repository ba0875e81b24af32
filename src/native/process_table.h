/* The processes of a recording, one row for each from its fork to its exit. Included by perfdata.c; the same in
 * Python, with the reasons: process_table.py. */

static process_row *row_at(world *w, uint32_t number) {
    return number == EMPTY ? NULL : &ITEM(w->rows, process_row, number);
}

/* Finds the row of a process, or adds one; `number` is EMPTY beyond the limit. */
static int ensure_row(world *w, int32_t pid, uint32_t *number) {
    process *p = process_of(w, pid);
    if (!p)
        return -1;
    if (p->row == EMPTY && w->rows.used < ROWS_LIMIT) {
        process_row fresh = {.pid = pid, .parent = EMPTY, .name = thread_name(w, pid), .executable = EMPTY};
        if (PUSH(w->rows, process_row, fresh))
            return -1;
        p->row = (uint32_t)(w->rows.used - 1);
    }
    *number = p->row;
    return 0;
}

static int fork_row(world *w, int32_t pid, int32_t parent, uint64_t time, int inherits) {
    uint32_t above, number;
    if (ensure_row(w, parent, &above))
        return -1;
    process *p = process_of(w, pid);
    if (!p)
        return -1;
    const process_row *known = row_at(w, p->row);
    if (known && (known->start || known->exited || (known->parent != EMPTY && known->parent != above)))
        p->row = EMPTY; /* an earlier process */
    int fresh = p->row == EMPTY;
    if (ensure_row(w, pid, &number))
        return -1;
    process_row *child = row_at(w, number);
    if (!child)
        return 0;
    child->parent = above;
    child->start = time;
    if (inherits && fresh && above != EMPTY)
        child->executable = row_at(w, above)->executable;
    return 0;
}

static int rename_row(world *w, int32_t pid, uint32_t name, uint64_t execed) {
    uint32_t number;
    if (ensure_row(w, pid, &number))
        return -1;
    process_row *row = row_at(w, number);
    if (!row)
        return 0;
    row->name = name;
    if (execed) {
        row->executable = EMPTY;
        row->execed = execed;
    }
    return 0;
}

static void map_row(world *w, const process *p, uint32_t name, uint64_t time) {
    process_row *row = row_at(w, p->row);
    if (row && row->executable == EMPTY && (row->execed || !time))
        row->executable = name;
}

static void exit_row(world *w, const process *p, int main_thread, uint64_t time) {
    process_row *row = row_at(w, p->row);
    if (!row)
        return;
    row->exited |= (uint8_t)main_thread;
    if (row->exited)
        row->end = time;
}

/* Names the rows without a name, and cuts cycles, so that following parents always ends. */
static int finish_rows(world *w) {
    size_t n = w->rows.used;
    uint32_t *walks = malloc((n + 1) * sizeof(uint32_t)); /* the walk that visited a row */
    if (!walks) {
        PyErr_NoMemory();
        return -1;
    }
    memset(walks, 0xff, n * sizeof(uint32_t));
    int failed = 0;
    for (uint32_t walk = 0; walk < n && !failed; walk++) {
        process_row *row = row_at(w, walk);
        failed = row->name == UNNAMED && (row->name = made_up_name(w, row->pid)) == EMPTY;
        uint32_t at = walk, last = walk;
        while (at != EMPTY && walks[at] == EMPTY) {
            walks[at] = walk;
            last = at;
            at = row_at(w, at)->parent;
        }
        if (at != EMPTY && walks[at] == walk)
            row_at(w, last)->parent = EMPTY;
    }
    free(walks);
    return failed ? -1 : 0;
}
