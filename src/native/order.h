/* Sorts the records by time, those of one instant in file order. Included by perfdata.c.
 *
 * Each core's records are in order and the cores are interleaved, so no record is far from its position.
 */

enum { A_BUCKET = 4, DIGIT = 11, DIGITS = 1 << DIGIT };

/* Sorts almost ordered records with a few moves each; returns 0 where that is not enough. */
static int sort_in_place(entry *all, size_t n) {
    size_t moves = 0;
    for (size_t i = 1; i < n; i++) {
        entry late = all[i];
        size_t to = i;
        for (; to && all[to - 1].time > late.time; to--)
            all[to] = all[to - 1];
        all[to] = late;
        moves += i - to;
        if (moves > 16 * n)
            return 0;
    }
    return 1;
}

/* One pass of a stable sort: by the bucket of each record. */
#define SCATTER(from, to, n, place, buckets, bucket)                                                                   \
    do {                                                                                                               \
        for (size_t i = 0; i < (n); i++)                                                                               \
            (place)[bucket((from)[i].time)]++;                                                                         \
        for (size_t b = 0, sum = 0; b < (buckets); b++) {                                                              \
            uint32_t here = (place)[b];                                                                                \
            (place)[b] = (uint32_t)sum;                                                                                \
            sum += here;                                                                                               \
        }                                                                                                              \
        for (size_t i = 0; i < (n); i++)                                                                               \
            (to)[(place)[bucket((from)[i].time)]++] = (from)[i];                                                       \
    } while (0)

static int sort_entries(list *entries) {
    size_t n = entries->used;
    entry *from = entries->items;
    uint64_t first = UINT64_MAX, last = 0;
    int unsorted = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t time = from[i].time;
        if (time && time < first) /* perf's records of the time before it began have time 0 */
            first = time;
        last = time > last ? time : last;
        unsorted |= i && time < from[i - 1].time;
    }
    if (!unsorted)
        return 0;
    int shift = 0;
    while ((last - first) >> shift > n / A_BUCKET + 1)
        shift++;
    size_t buckets = (size_t)((last - first) >> shift) + 1;
    entry *to = allocate(n * sizeof(entry));
    uint32_t *place = calloc(buckets > DIGITS ? buckets : DIGITS, sizeof(uint32_t));
    if (!to || !place) {
        free(to);
        free(place);
        PyErr_NoMemory();
        return -1;
    }
#define BY_TIME(time) ((time) < first ? 0 : ((time)-first) >> shift)
    SCATTER(from, to, n, place, buckets, BY_TIME);
    free(from);
    entries->items = to;
    if (!sort_in_place(to, n)) { /* a hostile file or a broken clock: sort digit by digit */
        from = to;
        to = allocate(n * sizeof(entry));
        if (!to) {
            free(place);
            PyErr_NoMemory();
            return -1;
        }
        for (int digit = 0; digit < 64 && last >> digit; digit += DIGIT) {
#define BY_DIGIT(time) ((time) >> digit & (DIGITS - 1))
            memset(place, 0, DIGITS * sizeof(uint32_t));
            SCATTER(from, to, n, place, DIGITS, BY_DIGIT);
            entry *other = from;
            from = to;
            to = other;
        }
        entries->items = from;
        free(to);
    }
    entries->room = n;
    free(place);
    return 0;
}
