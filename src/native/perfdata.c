/* Decodes the record stream of a perf.data file, like decode.py but many times as fast.
 *
 * The bytes are not trusted. The first pass checks every record against the stream, and every field that is
 * used against its record; the second pass, in time order, relies on these checks.
 */
#include "world.h"

#include "chains.h"

enum { RECORD_MMAP = 1, RECORD_LOST = 2, RECORD_COMM = 3, RECORD_EXIT = 4, RECORD_FORK = 7, RECORD_SAMPLE = 9,
       RECORD_MMAP2 = 10, RECORD_LOST_SAMPLES = 13 };
enum { HEADER = 8, MISC_DATA = 1 << 13, MISC_COMM_EXEC = 1 << 13, MISC_FORK_EXEC = 1 << 13, MISC_BUILD_ID = 1 << 14 };

enum { S_IP = 1 << 0, S_TID = 1 << 1, S_TIME = 1 << 2, S_ADDR = 1 << 3, S_READ = 1 << 4, S_CALLCHAIN = 1 << 5,
       S_ID = 1 << 6, S_CPU = 1 << 7, S_PERIOD = 1 << 8, S_STREAM_ID = 1 << 9, S_IDENTIFIER = 1 << 16 };
enum { R_ENABLED = 1 << 0, R_RUNNING = 1 << 1, R_ID = 1 << 2, R_GROUP = 1 << 3, R_LOST = 1 << 4 };

typedef struct {
    uint64_t type, read_format;
    size_t fixed;                /* bytes that every sample has */
    size_t tail, tail_time;      /* bytes of the identity at the end of other records; its time */
    const uint8_t *ids, *events; /* sorted u64 ids, and the event of each */
    size_t id_count;
} layout;

typedef struct {
    uint64_t time, period, id;
    int32_t pid, tid, cpu;
    const uint8_t *chain; /* recorded without call chains: the address alone */
    size_t depth;
} sample;

typedef struct {
    uint64_t time;
    uint32_t chain; /* EMPTY: a side-band record instead of a sample */
    uint32_t row;   /* of the moments, or of the side-band */
} entry;

typedef struct { /* a sample's fields other than time and chain */
    uint64_t period;
    int32_t pid, tid, cpu;
    uint8_t event;
} moment;

typedef struct { /* a side-band record: a copy, and its offset */
    size_t at, offset;
    uint16_t size;
} notice;

typedef struct { /* the result of the first pass */
    list entries, moments, notices, bytes;
    chains seen;
    uint64_t lost, last_id;
    uint8_t last_event;
} found;

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

/* Parses a sample record; returns 0 where it is too short for its fields. */
static int parse_sample(const layout *l, const uint8_t *record, size_t size, sample *s) {
    const uint8_t *p = record + HEADER, *end = record + size;
    if ((size_t)(end - p) < l->fixed)
        return 0;
    static const uint8_t nowhere[8];
    *s = (sample){.pid = -1, .tid = -1, .cpu = -1, .chain = nowhere, .depth = 1};
    if (l->type & S_IDENTIFIER)
        s->id = u64_at(p), p += 8;
    if (l->type & S_IP)
        s->chain = p, p += 8;
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

/* Returns whether the record changes the world and is long enough to be read. */
static int is_side(uint32_t type, size_t size) {
    switch (type) {
    case RECORD_COMM: return size > 16;
    case RECORD_FORK: case RECORD_EXIT: return size >= 24;
    case RECORD_MMAP: return size > 40;
    case RECORD_MMAP2: return size > 72;
    default: return 0;
    }
}

/* Where two events have the same id, the last one counts. */
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

static int answer_oldest(found *f) {
    const ask *oldest = &f->seen.asked[f->seen.answers++ % ASKED];
    uint32_t number = chain_of(&f->seen, oldest);
    ITEM(f->entries, entry, oldest->entry).chain = number;
    return number == EMPTY ? -1 : 0;
}

static int list_sample(found *f, const layout *l, const sample *s, uint8_t mode) {
    if (s->id != f->last_id) { /* a core's records come in runs */
        f->last_id = s->id;
        f->last_event = (uint8_t)event_of(l, s->id);
    }
    entry fresh = {.time = s->time, .row = (uint32_t)f->moments.used};
    moment rest = {.period = s->period, .pid = s->pid, .tid = s->tid, .cpu = s->cpu};
    rest.event = f->last_event;
    if (PUSH(f->moments, moment, rest) || PUSH(f->entries, entry, fresh))
        return -1;
    if (f->seen.asks == f->seen.answers + ASKED && answer_oldest(f))
        return -1;
    ask a = {.words = s->chain, .depth = (uint16_t)s->depth, .mode = mode, .entry = f->entries.used - 1};
    chains_ask(&f->seen, a);
    return 0;
}

static int list_notice(found *f, const layout *l, const uint8_t *record, uint16_t size, size_t offset) {
    entry fresh = {.time = side_time(l, record, size), .chain = EMPTY, .row = (uint32_t)f->notices.used};
    notice copy = {.at = f->bytes.used, .offset = offset, .size = size};
    if (list_append(&f->bytes, record, size) || PUSH(f->notices, notice, copy))
        return -1;
    return PUSH(f->entries, entry, fresh);
}

/* Reserves space for the rest, estimated from the records so far: growing later costs a copy. */
static int expect_more(found *f, size_t seen, size_t length) {
    enum { MOST = 256 << 20 }; /* a guess must not cost more than address space */
    list *lists[] = {&f->entries, &f->moments, &f->seen.known, &f->seen.words};
    const size_t widths[] = {sizeof(entry), sizeof(moment), sizeof(chain), 1};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        double wanted = 1.05 * (double)lists[i]->used * ((double)length / (double)seen);
        size_t room = wanted < (double)(MOST / widths[i]) ? (size_t)wanted : MOST / widths[i];
        if (room > lists[i]->room && list_resize(lists[i], room, widths[i]))
            return -1;
    }
    return 0;
}

/* Reports that the stream up to here is no longer needed. */
static int tell(PyObject *forget, size_t offset) {
    PyObject *nothing = forget == Py_None ? Py_NewRef(Py_None) : PyObject_CallFunction(forget, "n", (Py_ssize_t)offset);
    Py_XDECREF(nothing);
    return nothing ? 0 : -1;
}

/* First pass, in file order: checks every record and keeps what the second pass needs. Calls
 * `forget(offset)` now and then with the offset up to which the stream is no longer needed. */
static int list_records(const uint8_t *stream, size_t length, const layout *l, PyObject *forget, found *f) {
    enum { EVERY = 2 << 20, ESTIMATE = 8 << 20 };
    sample s;
    uint64_t records = 0, samples = 0; /* since Linux 6.0 both report the same losses */
    size_t size, told = 0;
    if (list_reserve(&f->seen.words, 1, 1)) /* also for chains without words */
        return -1;
    for (size_t offset = 0; length - offset >= HEADER; offset += size) {
        const uint8_t *record = stream + offset;
        uint32_t type = u32_at(record);
        size = u16_at(record + 6);
        if (size < HEADER) {
            refuse(PyUnicode_FromFormat("a record of %zu bytes", size), offset);
            return -1;
        }
        if (size > length - offset)
            break; /* a killed recorder leaves half a record */
        if (f->entries.used >= EMPTY) {
            refuse(PyUnicode_FromString("more samples than fit into one segment"), offset);
            return -1;
        }
        if (type == RECORD_SAMPLE) {
            if (!parse_sample(l, record, size, &s)) {
                refuse(PyUnicode_FromFormat("a sample of %zu bytes, too short for what it carries", size), offset);
                return -1;
            }
            if (list_sample(f, l, &s, u16_at(record + 4) & MODE_MASK))
                return -1;
        } else if (is_side(type, size)) {
            if (list_notice(f, l, record, (uint16_t)size, offset))
                return -1;
        } else if (type == RECORD_LOST && size >= 24)
            records += u64_at(record + 16);
        else if (type == RECORD_LOST_SAMPLES && size >= 16)
            samples += u64_at(record + 8);
        if (offset - told < EVERY)
            continue;
        if (told < ESTIMATE && offset >= ESTIMATE && expect_more(f, offset, length))
            return -1;
        told = offset;
        if (tell(forget, offset))
            return -1;
    }
    f->lost = records > samples ? records : samples;
    while (f->seen.answers < f->seen.asks)
        if (answer_oldest(f))
            return -1;
    index_free(&f->seen.index); /* all chains are numbered */
    f->seen.index = (index_t){0};
    return tell(forget, length);
}

#include "order.h"
#include "process_table.h"
#include "sideband.h"
#include "stacks.h"

/* ------------------------------------------------------------------ the second pass */

/* In time order: applies changes to the world, and finds each sample's task and stack at its time. */
static int resolve(found *f, world *w, tables *t) {
    enum { AHEAD = 12 };
    size_t n = f->entries.used, row = 0;
    if (tables_begin(t, f->moments.used))
        return -1;
    for (size_t i = 0; i < n; i++) {
        const entry e = ITEM(f->entries, entry, i);
        uint32_t soon = i + AHEAD < n ? ITEM(f->entries, entry, i + AHEAD).chain : EMPTY;
        if (soon != EMPTY)
            __builtin_prefetch(&ITEM(f->seen.known, chain, soon));
        if (e.chain == EMPTY) {
            const notice *said = &ITEM(f->notices, notice, e.row);
            w->changes++;
            if (on_side(w, (const uint8_t *)f->bytes.items + said->at, said->size, e.time))
                return -1;
            if (w->mappings > MAPPINGS_HARD || w->copied > MAPPINGS_COPIED) {
                refuse(PyUnicode_FromString("more memory mappings than any host has"), said->offset);
                return -1;
            }
            continue;
        }
        const moment *m = &ITEM(f->moments, moment, e.row);
        const seat *who = seat_of(t, w, m->pid, m->tid);
        if (!who)
            return -1;
        uint32_t stack = stack_of(t, w, &f->seen, e.chain, who);
        if (stack == EMPTY)
            return -1;
        t->time[row] = e.time;
        t->cpu[row] = m->cpu;
        t->task[row] = who->task;
        t->stack[row] = stack;
        t->event[row] = m->event;
        t->period[row++] = m->period;
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
    w->changes = 1; /* no thread has been seen in this state yet */
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

static void found_free(found *f) {
    list *lists[] = {&f->entries, &f->moments, &f->notices, &f->bytes};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        free(lists[i]->items);
    chains_free(&f->seen);
}

static PyObject *decode(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer stream, ids, events;
    unsigned long long type, read_format;
    int identity, build_ids;
    PyObject *forget = Py_None;
    if (!PyArg_ParseTuple(args, "y*KKppy*y*|O:decode", &stream, &type, &read_format, &identity, &build_ids, &ids, &events,
                          &forget))
        return NULL;
    layout l = {.type = type, .read_format = read_format, .ids = ids.buf, .events = events.buf, .tail_time = SIZE_MAX};
    l.fixed = 8 * bits(type & (S_IDENTIFIER | S_IP | S_TID | S_TIME | S_ADDR | S_ID | S_STREAM_ID | S_CPU | S_PERIOD));
    if (identity) {
        l.tail = 8 * bits(type & (S_TID | S_TIME | S_ID | S_STREAM_ID | S_CPU | S_IDENTIFIER));
        if (type & S_TIME)
            l.tail_time = type & S_TID ? 8 : 0;
    }
    l.id_count = (size_t)(ids.len / 8 < events.len ? ids.len / 8 : events.len);
    found f = {.last_event = (uint8_t)event_of(&l, 0)};
    world w = {.build_ids = build_ids};
    tables t = {0};
    PyObject *result = NULL;
    int done = !begin_world(&w) && !list_records(stream.buf, (size_t)stream.len, &l, forget, &f) &&
               !sort_entries(&f.entries) && !resolve(&f, &w, &t) && !finish_rows(&w);
    uint64_t lost = f.lost;
    found_free(&f); /* before the tables are copied, where memory peaks */
    if (done)
        result = tables_result(&t, &w, world_strings(&w), world_modules(&w), lost);
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
