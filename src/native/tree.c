/* Stacks folded into one tree: what store/tree.py does, many times as fast.
 *
 * Nodes come out in preorder: a node's descendants stand right behind it, so that the sums over all
 * subtrees are one running total, and every subtree is a slice.
 */
#include "bytes.h"

typedef struct {
    uint32_t parent, frame, first, next, last; /* children in the order in which they were met */
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
        const node *known = &ITEM(t->nodes, node, t->index.values[slot]);
        if (known->parent == parent && known->frame == frame)
            return t->index.values[slot];
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

/* The preorder number of every node; `order[k]` is the k-th node. */
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
    Py_buffer root, stack, end, frames, hash, flags;
} input;

/* Every index checked once: the arrays come from files. */
static int check(const input *in, size_t pairs, size_t stacks, size_t words, size_t frames) {
    const uint32_t *root = in->root.buf, *stack = in->stack.buf, *end = in->end.buf, *frame = in->frames.buf;
    int bad = in->stack.len != in->root.len || (size_t)in->flags.len != frames;
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
    PyObject *out[6] = {PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(pairs * 4)),
                        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(n * 4)),
                        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(n * 4)),
                        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(n * 4)),
                        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(n * 8)),
                        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n)};
    uint32_t *order = malloc((n + 1) * 4), *place = malloc((n + 1) * 4);
    int failed = !order || !place;
    for (int i = 0; i < 6; i++)
        failed |= !out[i];
    if (failed) {
        PyErr_NoMemory();
    } else {
        uint32_t *frame = (uint32_t *)PyBytes_AS_STRING(out[1]), *up = (uint32_t *)PyBytes_AS_STRING(out[2]);
        uint32_t *size = (uint32_t *)PyBytes_AS_STRING(out[3]);
        uint64_t *hash = (uint64_t *)PyBytes_AS_STRING(out[4]);
        uint8_t *flags = (uint8_t *)PyBytes_AS_STRING(out[5]);
        number_nodes(t, roots, order, place);
        for (size_t k = 0; k < n; k++) {
            const node *at = &ITEM(t->nodes, node, order[k]);
            size_t parent = at->parent == EMPTY ? k : place[at->parent];
            frame[k] = at->frame;
            up[k] = (uint32_t)(k - parent);
            size[k] = 1;
            hash[k] = mix((parent == k ? 0 : hash[parent]) * 0x9e3779b97f4a7c15ull ^
                          u64_at((const uint8_t *)in->hash.buf + 8 * (size_t)at->frame));
            /* The low half belongs to the frame alone; the high half to all that it called, too. */
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
    PyObject *result = failed ? NULL : Py_BuildValue("(OOOOOO)", out[0], out[1], out[2], out[3], out[4], out[5]);
    for (int i = 0; i < 6; i++)
        Py_XDECREF(out[i]);
    return result;
}

static PyObject *fold(PyObject *self, PyObject *args) {
    (void)self;
    input in;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*:fold", &in.root, &in.stack, &in.end, &in.frames, &in.hash, &in.flags))
        return NULL;
    size_t pairs = (size_t)in.root.len / 4, stacks = (size_t)in.end.len / 4, words = (size_t)in.frames.len / 4;
    tree t = {0};
    list roots = {0};
    PyObject *result = NULL;
    uint32_t *leaf = malloc((pairs + 1) * 4);
    if (!leaf)
        PyErr_NoMemory();
    else if (!check(&in, pairs, stacks, words, (size_t)in.hash.len / 8)) {
        const uint32_t *root = in.root.buf, *stack = in.stack.buf, *end = in.end.buf, *frame = in.frames.buf;
        int failed = 0;
        for (size_t i = 0; i < pairs && !failed; i++) {
            size_t before = t.nodes.used;
            uint32_t at = child_of(&t, EMPTY, root[i]);
            if (at != EMPTY && t.nodes.used > before)
                failed = PUSH(roots, uint32_t, at);
            for (size_t j = stack[i] ? end[stack[i] - 1] : 0; at != EMPTY && j < end[stack[i]]; j++)
                at = child_of(&t, at, frame[j]);
            failed |= at == EMPTY;
            leaf[i] = at;
        }
        if (!failed)
            result = describe(&t, &roots, &in, leaf, pairs);
    }
    free(leaf);
    free(roots.items);
    free(t.nodes.items);
    index_free(&t.index);
    PyBuffer_Release(&in.root);
    PyBuffer_Release(&in.stack);
    PyBuffer_Release(&in.end);
    PyBuffer_Release(&in.frames);
    PyBuffer_Release(&in.hash);
    PyBuffer_Release(&in.flags);
    return result;
}

static PyMethodDef METHODS[] = {
    {"fold", fold, METH_VARARGS, "Stacks folded into one tree, in preorder."},
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
