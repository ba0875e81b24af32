/* The record stream of a perf.data file: what decode.py does, many times as fast.
 *
 * The bytes are hostile until proved otherwise. The first pass checks every record against the
 * stream and every field that is used against its record; the second, in time order, trusts it.
 */
#include "world.h"

enum { RECORD_MMAP = 1, RECORD_LOST = 2, RECORD_COMM = 3, RECORD_EXIT = 4, RECORD_FORK = 7, RECORD_SAMPLE = 9,
       RECORD_MMAP2 = 10, RECORD_LOST_SAMPLES = 13 };
enum { HEADER = 8, MODE_MASK = 7, MODE_KERNEL = 1, MODE_USER = 2, MISC_DATA = 1 << 13, MISC_FORK_EXEC = 1 << 13,
       MISC_BUILD_ID = 1 << 14 };
#define CONTEXT_LIMIT ((uint64_t)-4095) /* PERF_CONTEXT_MAX: from here on a word is a marker, not an address */
#define CONTEXT_KERNEL ((uint64_t)-128)
#define CONTEXT_USER ((uint64_t)-512)

enum { S_IP = 1 << 0, S_TID = 1 << 1, S_TIME = 1 << 2, S_ADDR = 1 << 3, S_READ = 1 << 4, S_CALLCHAIN = 1 << 5,
       S_ID = 1 << 6, S_CPU = 1 << 7, S_PERIOD = 1 << 8, S_STREAM_ID = 1 << 9, S_IDENTIFIER = 1 << 16 };
enum { R_ENABLED = 1 << 0, R_RUNNING = 1 << 1, R_ID = 1 << 2, R_GROUP = 1 << 3, R_LOST = 1 << 4 };

typedef struct {
    uint64_t type, read_format;
    size_t tail, tail_time;     /* bytes of the identity that other records end with; its time */
    const uint8_t *ids, *events; /* sorted u64 ids, and the event of each */
    size_t id_count;
} layout;

typedef struct {
    uint64_t ip, time, period, id;
    int32_t pid, tid, cpu;
    const uint8_t *chain;
    size_t depth;
} sample;

typedef struct {
    uint64_t time;
    size_t offset;
} entry;

static size_t bits(uint64_t value) { return (size_t)__builtin_popcountll(value); }

/* Bytes that PERF_SAMPLE_READ takes, or SIZE_MAX where they do not fit into `left`. */
static size_t read_size(const layout *l, const uint8_t *p, size_t left) {
    uint64_t f = l->read_format;
    size_t values = 1 + bits(f & (R_ID | R_LOST)), head = bits(f & (R_ENABLED | R_RUNNING));
    if (!(f & R_GROUP))
        return 8 * (values + head);
    if (left < 8)
        return SIZE_MAX;
    uint64_t members = u64_at(p);
    return members > left / 8 ? SIZE_MAX : 8 * (1 + head + (size_t)members * values);
}

/* Takes a sample record apart; 0 where it is too short for what it should carry. */
static int parse_sample(const layout *l, const uint8_t *record, size_t size, sample *s) {
    const uint8_t *p = record + HEADER, *end = record + size;
    const uint64_t fixed = S_IDENTIFIER | S_IP | S_TID | S_TIME | S_ADDR | S_ID | S_STREAM_ID | S_CPU | S_PERIOD;
    if ((size_t)(end - p) < 8 * bits(l->type & fixed))
        return 0;
    *s = (sample){.pid = -1, .tid = -1, .cpu = -1};
    if (l->type & S_IDENTIFIER)
        s->id = u64_at(p), p += 8;
    if (l->type & S_IP)
        s->ip = u64_at(p), p += 8;
    if (l->type & S_TID)
        s->pid = (int32_t)u32_at(p), s->tid = (int32_t)u32_at(p + 4), p += 8;
    if (l->type & S_TIME)
        s->time = u64_at(p), p += 8;
    if (l->type & S_ADDR)
        p += 8;
    if (l->type & S_ID)
        s->id = u64_at(p), p += 8;
    if (l->type & S_STREAM_ID)
        p += 8;
    if (l->type & S_CPU)
        s->cpu = (int32_t)u32_at(p), p += 8;
    if (l->type & S_PERIOD)
        s->period = u64_at(p), p += 8;
    if (l->type & S_READ) {
        size_t skip = read_size(l, p, (size_t)(end - p));
        if (skip > (size_t)(end - p))
            return 0;
        p += skip;
    }
    if (l->type & S_CALLCHAIN) {
        if (end - p < 8)
            return 0;
        uint64_t depth = u64_at(p);
        p += 8;
        if (depth > (size_t)(end - p) / 8)
            return 0;
        s->chain = p;
        s->depth = (size_t)depth;
    }
    return 1;
}

static uint64_t side_time(const layout *l, const uint8_t *record, size_t size) {
    return l->tail_time == SIZE_MAX || size < HEADER + l->tail ? 0 : u64_at(record + size - l->tail + l->tail_time);
}

/* Whether the state of the world depends on the record, and it is long enough to be read. */
static int is_side(uint32_t type, size_t size) {
    switch (type) {
    case RECORD_COMM: return size > 16;
    case RECORD_FORK: case RECORD_EXIT: return size >= 24;
    case RECORD_MMAP: return size > 40;
    case RECORD_MMAP2: return size > 72;
    default: return 0;
    }
}

/* First pass: every record is checked, samples and side-band are listed, losses are counted. */
static int list_records(const uint8_t *stream, size_t length, const layout *l, list *entries, uint64_t *lost) {
    sample s;
    uint64_t records = 0, samples = 0; /* since Linux 6.0 both are told, of the same losses */
    for (size_t offset = 0, size; length - offset >= HEADER; offset += size) {
        const uint8_t *record = stream + offset;
        uint32_t type = u32_at(record);
        size = u16_at(record + 6);
        if (size < HEADER) {
            refuse(PyUnicode_FromFormat("a record of %zu bytes", size), offset);
            return -1;
        }
        if (size > length - offset)
            break; /* a recorder that was killed leaves half a record */
        entry found = {.offset = offset};
        if (type == RECORD_SAMPLE) {
            if (!parse_sample(l, record, size, &s)) {
                refuse(PyUnicode_FromFormat("a sample of %zu bytes, too short for what it carries", size), offset);
                return -1;
            }
            found.time = s.time;
        } else if (is_side(type, size)) {
            found.time = side_time(l, record, size);
        } else {
            if (type == RECORD_LOST && size >= 24)
                records += u64_at(record + 16);
            else if (type == RECORD_LOST_SAMPLES && size >= 16)
                samples += u64_at(record + 8);
            continue;
        }
        if (PUSH(*entries, entry, found))
            return -1;
    }
    *lost = records > samples ? records : samples;
    return 0;
}

/* Stable radix sort by time: each core's records are in order, the cores' are interleaved. */
static int sort_entries(list *entries) {
    enum { DIGIT = 11, BUCKETS = 1 << DIGIT };
    size_t n = entries->used;
    entry *from = entries->items;
    uint64_t all = 0, unsorted = 0;
    for (size_t i = 0; i < n; i++) {
        all |= from[i].time;
        unsorted |= i && from[i].time < from[i - 1].time;
    }
    if (!unsorted)
        return 0;
    entry *to = malloc(n * sizeof(entry)), *spare = to;
    if (!to) {
        PyErr_NoMemory();
        return -1;
    }
    for (int shift = 0; shift < 64 && all >> shift; shift += DIGIT) {
        size_t place[BUCKETS] = {0};
        for (size_t i = 0; i < n; i++)
            place[from[i].time >> shift & (BUCKETS - 1)]++;
        for (size_t b = 0, sum = 0; b < BUCKETS; b++) {
            size_t here = place[b];
            place[b] = sum;
            sum += here;
        }
        for (size_t i = 0; i < n; i++)
            to[place[from[i].time >> shift & (BUCKETS - 1)]++] = from[i];
        entry *other = from;
        from = to;
        to = other;
    }
    if (from == spare) { /* keep the result in the list */
        memcpy(entries->items, spare, n * sizeof(entry));
    }
    free(spare);
    return 0;
}

/* ------------------------------------------------------------------ side-band: the world changes */

static int starts_with(const char *text, size_t length, const char *prefix) {
    size_t n = strlen(prefix);
    return length >= n && !memcmp(text, prefix, n);
}

/* Memory that no file backs: names for it come from the JIT's /tmp/perf-PID.map, by address. */
static int is_anonymous(const char *name, size_t length) {
    static const char *const prefixes[] = {"//anon", "/dev/zero", "/anon_hugepage", "[heap]", "[stack", "/SYSV", "/memfd:"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (starts_with(name, length, prefixes[i]))
            return 1;
    return 0;
}

static int on_mmap(world *w, const uint8_t *record, size_t size) {
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
    if (is_anonymous(name, name_length)) {
        name_length = (size_t)snprintf(jit, sizeof jit, "/tmp/perf-%d.map", (int)pid);
        name = jit;
        fresh.page_offset = start;
    } else if (second && misc & MISC_BUILD_ID) {
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
    space *s = p ? own_space(w, p) : NULL;
    if (!s || map_over(w, s, fresh))
        return -1;
    if (w->mappings > w->forget_above)
        forget_exited(w);
    return 0;
}

static int on_fork(world *w, const uint8_t *record) {
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
    if (u16_at(record + 4) & MISC_FORK_EXEC) /* perf's own account of a process that was there before */
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

static int on_side(world *w, const uint8_t *record, size_t size) {
    switch (u32_at(record)) {
    case RECORD_COMM: {
        uint32_t name = intern(w, (const char *)record + 16, strnlen((const char *)record + 16, size - 16));
        thread *t = name == EMPTY ? NULL : thread_of(w, (int32_t)u32_at(record + 12));
        if (!t)
            return -1;
        t->name = name;
        return 0;
    }
    case RECORD_FORK:
        return on_fork(w, record);
    case RECORD_EXIT: {
        int32_t pid = (int32_t)u32_at(record + 8), tid = (int32_t)u32_at(record + 16);
        process *p = process_of(w, pid);
        if (!p)
            return -1;
        p->exited |= pid == tid;
        return 0;
    }
    default:
        return on_mmap(w, record, size);
    }
}

#include "stacks.h"

/* ------------------------------------------------------------------ the second pass */

/* Of an id that two events claim, the last one's. */
static int event_of(const layout *l, uint64_t id) {
    size_t low = 0, high = l->id_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (u64_at(l->ids + 8 * middle) <= id)
            low = middle + 1;
        else
            high = middle;
    }
    return low && u64_at(l->ids + 8 * (low - 1)) == id ? l->events[low - 1] : 0;
}

static int resolve(const uint8_t *stream, const layout *l, const list *entries, world *w, tables *t) {
    for (size_t i = 0; i < entries->used; i++) {
        const uint8_t *record = stream + ITEM(*entries, entry, i).offset;
        size_t size = u16_at(record + 6);
        if (u32_at(record) != RECORD_SAMPLE) {
            if (on_side(w, record, size))
                return -1;
            if (w->mappings > MAPPINGS_HARD || w->copied > MAPPINGS_COPIED) {
                refuse(PyUnicode_FromString("more memory mappings than any host has"), ITEM(*entries, entry, i).offset);
                return -1;
            }
            continue;
        }
        sample s = {0};
        if (!parse_sample(l, record, size, &s))
            Py_UNREACHABLE();
        uint32_t task = task_of(t, w, s.pid, s.tid);
        if (task == EMPTY)
            return -1;
        uint32_t stack = stack_of(t, w, &s, u16_at(record + 4) & MODE_MASK);
        if (stack == EMPTY)
            return -1;
        uint8_t event = (uint8_t)event_of(l, s.id);
        if (PUSH(t->time, uint64_t, s.time) || PUSH(t->cpu, int32_t, s.cpu) || PUSH(t->task, uint32_t, task) ||
            PUSH(t->stack, uint32_t, stack) || PUSH(t->event, uint8_t, event) || PUSH(t->period, uint64_t, s.period))
            return -1;
    }
    return 0;
}

static PyObject *world_strings(const world *w) {
    PyObject *strings = PyList_New((Py_ssize_t)w->text_end.used);
    for (uint32_t i = 0; strings && i < w->text_end.used; i++) {
        size_t length;
        const char *text = string_at(w, i, &length);
        PyObject *item = PyBytes_FromStringAndSize(text, (Py_ssize_t)length);
        if (!item)
            Py_CLEAR(strings);
        else
            PyList_SET_ITEM(strings, (Py_ssize_t)i, item);
    }
    return strings;
}

static PyObject *world_modules(const world *w) {
    PyObject *modules = PyList_New((Py_ssize_t)w->modules.used);
    for (size_t i = 0; modules && i < w->modules.used; i++) {
        const module *m = &ITEM(w->modules, module, i);
        PyObject *item = Py_BuildValue("(Iiy#)", m->name, m->pid, m->build_id, (Py_ssize_t)m->build_id_size);
        if (!item)
            Py_CLEAR(modules);
        else
            PyList_SET_ITEM(modules, (Py_ssize_t)i, item);
    }
    return modules;
}

static int begin_world(world *w) {
    w->forget_above = MAPPINGS_SOFT;
    if (index_grow(&w->process_index))
        return -1;
    uint32_t kernel = intern(w, "[kernel]", 8), unknown = intern(w, "[unknown]", 9), idle = intern(w, "swapper", 7);
    if (kernel == EMPTY || unknown == EMPTY || idle == EMPTY)
        return -1;
    if (module_of(w, (module){.name = kernel, .pid = -1}) == EMPTY ||
        module_of(w, (module){.name = unknown, .pid = -1}) == EMPTY)
        return -1;
    thread *swapper = thread_of(w, 0);
    if (!swapper)
        return -1;
    swapper->name = idle;
    return 0;
}

static PyObject *decode(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer stream, ids, events;
    unsigned long long type, read_format;
    int identity;
    if (!PyArg_ParseTuple(args, "y*KKpy*y*:decode", &stream, &type, &read_format, &identity, &ids, &events))
        return NULL;
    layout l = {.type = type, .read_format = read_format, .ids = ids.buf, .events = events.buf, .tail_time = SIZE_MAX};
    if (identity) {
        l.tail = 8 * bits(type & (S_TID | S_TIME | S_ID | S_STREAM_ID | S_CPU | S_IDENTIFIER));
        if (type & S_TIME)
            l.tail_time = type & S_TID ? 8 : 0;
    }
    l.id_count = (size_t)(ids.len / 8 < events.len ? ids.len / 8 : events.len);
    list entries = {0};
    world w = {0};
    tables t = {0};
    uint64_t lost = 0;
    PyObject *result = NULL;
    int done = !begin_world(&w) && !list_records(stream.buf, (size_t)stream.len, &l, &entries, &lost) &&
               !sort_entries(&entries) && !resolve(stream.buf, &l, &entries, &w, &t);
    free(entries.items); /* before the tables are copied: this is where memory peaks */
    if (done)
        result = tables_result(&t, world_strings(&w), world_modules(&w), lost);
    world_free(&w);
    tables_free(&t);
    PyBuffer_Release(&stream);
    PyBuffer_Release(&ids);
    PyBuffer_Release(&events);
    return result;
}

static PyMethodDef METHODS[] = {
    {"decode", decode, METH_VARARGS, "The samples of a perf.data record stream, with the tables they point into."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_perfdata",
    .m_doc = "Decodes perf.data records in C; overnight.sources.perf.decode is the same in Python.",
    .m_size = -1,
    .m_methods = METHODS,
};

PyMODINIT_FUNC PyInit__perfdata(void) {
    choose_secret();
    return PyModule_Create(&MODULE);
}
