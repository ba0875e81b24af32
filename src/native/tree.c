/* Folds stacks into one tree, like store/tree.py but many times as fast.
 *
 * Nodes are in preorder: a node is followed by its descendants, so that the sums over all subtrees are one
 * running total, and every subtree is a slice.
 */
#include "bytes.h"

#define MOST_PAIRS (1 << 27) /* possible pairs: one bit each */

typedef struct {
    uint32_t parent, frame, first, next, last; /* children in the order of their first occurrence */
} node;

typedef struct {
    list nodes;
    index_t index;
} tree;

static uint32_t child_of(tree *t, uint32_t parent, uint32_t frame) {
    uint64_t hash = join(join(secret, parent), frame);
    if (index_grow(&t->index))
        return EMPTY;
    size_t slot = index_first(&t->index, hash);
    for (; index_taken(&t->index, slot); slot = index_next(&t->index, slot)) {
        const node *known = &ITEM(t->nodes, node, t->index.slots[slot].value);
        if (known->parent == parent && known->frame == frame)
            return t->index.slots[slot].value;
    }
    node fresh = {.parent = parent, .frame = frame, .first = EMPTY, .next = EMPTY, .last = EMPTY};
    uint32_t number = (uint32_t)t->nodes.used;
    if (PUSH(t->nodes, node, fresh))
        return EMPTY;
    index_put(&t->index, slot, hash, number);
    if (parent != EMPTY) {
        node *above = &ITEM(t->nodes, node, parent);
        if (above->last == EMPTY)
            above->first = number;
        else
            ITEM(t->nodes, node, above->last).next = number;
        above->last = number;
    }
    return number;
}

/* Computes the preorder number of every node; `order[k]` is the k-th node. */
static void number_nodes(const tree *t, const list *roots, uint32_t *order, uint32_t *place) {
    uint32_t k = 0;
    for (size_t r = 0; r < roots->used; r++) {
        uint32_t at = ITEM(*roots, uint32_t, r);
        for (;;) {
            const node *n = &ITEM(t->nodes, node, at);
            place[at] = k;
            order[k++] = at;
            if (n->first != EMPTY) {
                at = n->first;
                continue;
            }
            while (n->parent != EMPTY && n->next == EMPTY)
                n = &ITEM(t->nodes, node, n->parent);
            if (n->parent == EMPTY)
                break;
            at = n->next;
        }
    }
}

typedef struct {
    Py_buffer root, stack, end, frames, flags;
} input;

/* Checks every index once: the arrays come from files. */
static int check(const input *in, size_t pairs, size_t stacks, size_t words, size_t frames) {
    const uint32_t *root = in->root.buf, *stack = in->stack.buf, *end = in->end.buf, *frame = in->frames.buf;
    int bad = in->stack.len != in->root.len;
    for (size_t i = 0; i < pairs && !bad; i++)
        bad = stack[i] >= stacks || root[i] >= frames;
    for (size_t i = 0; i < stacks && !bad; i++)
        bad = end[i] > words || (i && end[i] < end[i - 1]);
    for (size_t i = 0; i < words && !bad; i++)
        bad = frame[i] >= frames;
    if (bad)
        PyErr_SetString(PyExc_ValueError, "an index points outside its table");
    return bad;
}

static PyObject *describe(const tree *t, const list *roots, const input *in, uint32_t *leaf, size_t pairs) {
    size_t n = t->nodes.used;
    const uint8_t *frame_flags = in->flags.buf;
    PyObject *out[5] = {PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(pairs * 4)),
                        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(n * 4)),
                        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(n * 4)),
                        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(n * 4)),
                        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n)};
    uint32_t *order = malloc((n + 1) * 4), *place = malloc((n + 1) * 4);
    int failed = !order || !place;
    for (int i = 0; i < 5; i++)
        failed |= !out[i];
    if (failed) {
        PyErr_NoMemory();
    } else {
        uint32_t *frame = (uint32_t *)PyBytes_AS_STRING(out[1]), *up = (uint32_t *)PyBytes_AS_STRING(out[2]);
        uint32_t *size = (uint32_t *)PyBytes_AS_STRING(out[3]);
        uint8_t *flags = (uint8_t *)PyBytes_AS_STRING(out[4]);
        number_nodes(t, roots, order, place);
        for (size_t k = 0; k < n; k++) {
            const node *at = &ITEM(t->nodes, node, order[k]);
            size_t parent = at->parent == EMPTY ? k : place[at->parent];
            frame[k] = at->frame;
            up[k] = (uint32_t)(k - parent);
            size[k] = 1;
            /* The low half counts the frame itself; the high half includes its callees. */
            flags[k] = (uint8_t)(frame_flags[at->frame] | (parent == k ? 0 : flags[parent] & 0xf0));
        }
        for (size_t k = n; k-- > 0;)
            if (up[k])
                size[k - up[k]] += size[k];
        uint32_t *numbered = (uint32_t *)PyBytes_AS_STRING(out[0]);
        for (size_t i = 0; i < pairs; i++)
            numbered[i] = place[leaf[i]];
    }
    free(order);
    free(place);
    PyObject *result = failed ? NULL : Py_BuildValue("(OOOOO)", out[0], out[1], out[2], out[3], out[4]);
    for (int i = 0; i < 5; i++)
        Py_XDECREF(out[i]);
    return result;
}

/* Returns the node at which a stack under a root ends; EMPTY with an exception set. `path` has the nodes of
 * the previous stack: the common beginning needs no lookups. */
static uint32_t walk(tree *t, list *roots, list *path, uint32_t root, const uint32_t *frame, const uint32_t *end) {
    size_t depth = 1, known = path->used;
    uint32_t at = known ? ITEM(*path, uint32_t, 0) : EMPTY;
    if (at == EMPTY || ITEM(t->nodes, node, at).frame != root) {
        size_t before = t->nodes.used;
        at = child_of(t, EMPTY, root);
        if (at == EMPTY || (t->nodes.used > before && PUSH(*roots, uint32_t, at)))
            return EMPTY;
        known = 0;
    }
    if (list_reserve(path, (size_t)(end - frame) + 1, sizeof(uint32_t)))
        return EMPTY;
    uint32_t *nodes = path->items;
    nodes[0] = at;
    for (; frame < end; frame++, depth++) {
        if (depth < known && ITEM(t->nodes, node, nodes[depth]).frame == *frame)
            at = nodes[depth];
        else {
            known = 0;
            at = child_of(t, at, *frame);
            if (at == EMPTY)
                return EMPTY;
            nodes[depth] = at;
        }
    }
    path->used = depth;
    return at;
}

static PyObject *fold(PyObject *self, PyObject *args) {
    (void)self;
    input in;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*:fold", &in.root, &in.stack, &in.end, &in.frames, &in.flags))
        return NULL;
    size_t pairs = (size_t)in.root.len / 4, stacks = (size_t)in.end.len / 4, words = (size_t)in.frames.len / 4;
    tree t = {0};
    list roots = {0}, path = {0};
    PyObject *result = NULL;
    uint32_t *leaf = malloc((pairs + 1) * 4);
    if (!leaf)
        PyErr_NoMemory();
    else if (!check(&in, pairs, stacks, words, (size_t)in.flags.len)) {
        const uint32_t *root = in.root.buf, *stack = in.stack.buf, *end = in.end.buf, *frame = in.frames.buf;
        int failed = 0;
        for (size_t i = 0; i < pairs && !failed; i++) {
            leaf[i] = walk(&t, &roots, &path, root[i], frame + (stack[i] ? end[stack[i] - 1] : 0), frame + end[stack[i]]);
            failed = leaf[i] == EMPTY;
        }
        if (!failed)
            result = describe(&t, &roots, &in, leaf, pairs);
    }
    free(leaf);
    free(roots.items);
    free(path.items);
    free(t.nodes.items);
    index_free(&t.index);
    PyBuffer_Release(&in.root);
    PyBuffer_Release(&in.stack);
    PyBuffer_Release(&in.end);
    PyBuffer_Release(&in.frames);
    PyBuffer_Release(&in.flags);
    return result;
}

/* Counts the bits set before `bit`; `before` has the count for each word. */
static inline uint32_t rank_of(const uint64_t *bits, const uint32_t *before, uint64_t bit) {
    uint64_t below = bits[bit / 64] & ((1ull << bit % 64) - 1);
    return before[bit / 64] + (uint32_t)__builtin_popcountll(below);
}

/* Numbers the existing pairs by process, then stack: one bit for each possible pair. */
static PyObject *number_pairs(const uint32_t *process, const uint32_t *task, const uint32_t *stack, size_t rows,
                              size_t stacks, size_t words, uint64_t *bits, uint32_t *before) {
    for (size_t i = 0; i < rows; i++) {
        uint64_t bit = (uint64_t)process[task[i]] * stacks + stack[i];
        bits[bit / 64] |= 1ull << bit % 64;
    }
    size_t pairs = 0;
    for (size_t i = 0; i < words; i++) {
        before[i] = (uint32_t)pairs;
        pairs += (size_t)__builtin_popcountll(bits[i]);
    }
    PyObject *places = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(pairs * 8));
    PyObject *numbers = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(rows * 4));
    if (!places || !numbers) {
        Py_XDECREF(places);
        Py_XDECREF(numbers);
        return NULL;
    }
    uint64_t *place = (uint64_t *)PyBytes_AS_STRING(places);
    for (size_t i = 0; i < words; i++)
        for (uint64_t left = bits[i]; left; left &= left - 1)
            *place++ = i * 64 + (uint64_t)__builtin_ctzll(left);
    uint32_t *number = (uint32_t *)PyBytes_AS_STRING(numbers);
    for (size_t i = 0; i < rows; i++)
        number[i] = rank_of(bits, before, (uint64_t)process[task[i]] * stacks + stack[i]);
    return Py_BuildValue("(NN)", places, numbers);
}

static PyObject *pair(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer process, task, stack;
    Py_ssize_t processes, stacks;
    if (!PyArg_ParseTuple(args, "y*y*y*nn:pair", &process, &task, &stack, &processes, &stacks))
        return NULL;
    size_t rows = (size_t)task.len / 4, tasks = (size_t)process.len / 4;
    PyObject *result = NULL;
    /* Checks every index once: the arrays come from files. */
    int bad = processes < 0 || stacks < 0 || (stacks && processes > (Py_ssize_t)(MOST_PAIRS / stacks)) ||
              stack.len != task.len;
    for (size_t i = 0; i < tasks && !bad; i++)
        bad = ((uint32_t *)process.buf)[i] >= (size_t)processes;
    for (size_t i = 0; i < rows && !bad; i++)
        bad = ((uint32_t *)task.buf)[i] >= tasks || ((uint32_t *)stack.buf)[i] >= (size_t)stacks;
    if (bad)
        PyErr_SetString(PyExc_ValueError, "an index points outside its table");
    else {
        size_t words = (size_t)processes * (size_t)stacks / 64 + 1;
        uint64_t *bits = calloc(words, 8);
        uint32_t *before = malloc(words * 4);
        if (!bits || !before)
            PyErr_NoMemory();
        else
            result = number_pairs(process.buf, task.buf, stack.buf, rows, (size_t)stacks, words, bits, before);
        free(bits);
        free(before);
    }
    PyBuffer_Release(&process);
    PyBuffer_Release(&task);
    PyBuffer_Release(&stack);
    return result;
}

static PyMethodDef METHODS[] = {
    {"fold", fold, METH_VARARGS, "Stacks folded into one tree, in preorder."},
    {"pair", pair, METH_VARARGS, "The distinct pairs of process and stack, and each row's among them."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_tree",
    .m_doc = "Folds stacks into a tree in C; overnight.store.tree does the same in Python.",
    .m_size = -1,
    .m_methods = METHODS,
};

PyMODINIT_FUNC PyInit__tree(void) {
    choose_secret();
    return PyModule_Create(&MODULE);
}
