/* Call chains as the kernel wrote them, each stored once. Included by perfdata.c.
 *
 * There are hundreds of thousands, and samples need them in random order: each lookup would wait for memory
 * three times. So a lookup is finished some samples later, and the memory it needs is prefetched meanwhile.
 */

enum { MODE_MASK = 7, MODE_KERNEL = 1, MODE_USER = 2 };
#define CONTEXT_LIMIT ((uint64_t)-4095) /* PERF_CONTEXT_MAX: from here on a word is a marker, not an address */
#define CONTEXT_KERNEL ((uint64_t)-128)
#define CONTEXT_USER ((uint64_t)-512)

typedef struct {
    size_t at;               /* of its words, in `words` */
    uint32_t version, stack; /* the state of the address space where it was last seen, and its stack there */
    uint16_t depth;
    uint8_t mode;
    uint8_t user;   /* whether it has addresses that depend on the address space */
    uint8_t listed; /* whether `version` and `stack` are among the meanings, too */
} chain;

typedef struct {
    const uint8_t *words;
    uint64_t hash;
    size_t entry; /* whose chain it is */
    uint16_t depth;
    uint8_t mode;
} ask;

enum { ASKED = 16, FETCH_CHAIN = 5, FETCH_WORDS = 10 };

typedef struct {
    list known, words;
    index_t index;
    ask asked[ASKED];
    size_t asks, answers;
} chains;

/* Returns the mode after a marker. */
static int mode_after(uint64_t marker) {
    return marker == CONTEXT_KERNEL ? MODE_KERNEL : marker == CONTEXT_USER ? MODE_USER : 0;
}

static int has_user_frames(const uint8_t *words, size_t depth, int mode) {
    for (size_t i = 0; i < depth; i++) {
        uint64_t word = u64_at(words + 8 * i);
        if (word >= CONTEXT_LIMIT)
            mode = mode_after(word);
        else if (mode == MODE_USER)
            return 1;
    }
    return 0;
}

/* Returns the number of a chain, or EMPTY with an exception set. */
static uint32_t chain_of(chains *c, const ask *a) {
    if (index_grow(&c->index))
        return EMPTY;
    size_t slot = index_first(&c->index, a->hash);
    for (; index_taken(&c->index, slot); slot = index_next(&c->index, slot)) {
        if (!index_like(&c->index, slot, a->hash))
            continue;
        const chain *known = &ITEM(c->known, chain, c->index.slots[slot].value);
        if (known->mode == a->mode && known->depth == a->depth &&
            !memcmp((const uint8_t *)c->words.items + known->at, a->words, 8u * a->depth))
            return c->index.slots[slot].value;
    }
    chain fresh = {.at = c->words.used, .version = EMPTY, .stack = EMPTY, .depth = a->depth, .mode = a->mode};
    fresh.user = (uint8_t)has_user_frames(a->words, a->depth, a->mode);
    uint32_t number = (uint32_t)c->known.used;
    if (list_append(&c->words, a->words, 8u * a->depth) || PUSH(c->known, chain, fresh))
        return EMPTY;
    index_put(&c->index, slot, a->hash, number);
    return number;
}

/* Queues the lookup of a chain; the queue must have room. */
static void chains_ask(chains *c, ask a) {
    a.hash = hash_bytes(a.words, 8u * a.depth) ^ mix(a.mode);
    c->asked[c->asks++ % ASKED] = a;
    if (!c->index.room)
        return;
    __builtin_prefetch(&c->index.slots[index_first(&c->index, a.hash)]);
    if (c->asks >= c->answers + FETCH_CHAIN) {
        size_t slot = index_first(&c->index, c->asked[(c->asks - FETCH_CHAIN) % ASKED].hash);
        if (index_taken(&c->index, slot))
            __builtin_prefetch(&ITEM(c->known, chain, c->index.slots[slot].value));
    }
    if (c->asks >= c->answers + FETCH_WORDS) {
        size_t slot = index_first(&c->index, c->asked[(c->asks - FETCH_WORDS) % ASKED].hash);
        if (index_taken(&c->index, slot)) {
            size_t at = ITEM(c->known, chain, c->index.slots[slot].value).at;
            __builtin_prefetch((const uint8_t *)c->words.items + at);
            __builtin_prefetch((const uint8_t *)c->words.items + at + 64); /* may be past the end: harmless */
        }
    }
}

static void chains_free(chains *c) {
    free(c->known.items);
    free(c->words.items);
    index_free(&c->index);
}
