/* The routing of bmgd in C: hop counts, next hops, ranks, link changes, and the relay's splitter.
 *
 * bmgd/topology/distance.py and bmgd/routing/{ranks,reference}.py are the same in Python, with the
 * reasons; both give the same answers, and the tests hold one against the other. Sections:
 *
 *   arithmetic   hop counts and first hops, without Python
 *   arguments    Python objects to checked numbers
 *   ranks        ids to ranks and back over Python sequences
 *   functions    the module's functions
 *   snapshot     the immutable forwarding snapshot
 *   splitter     a chunk of bytes to frames and runs
 *   papers       the papers' own algorithms, for the laboratory
 *   faults       what failed nodes do to the survivors
 *   benchmark    next hops by several methods, timed without Python
 *   module
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

#define SIZE_MAX_RANKS ((int64_t)1 << 31)
#define U32_LIMIT ((int64_t)1 << 32)

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* ---- arithmetic ------------------------------------------------------------------------- */

/* A walk of `length` ranks in the direction of `sign` that takes `weight` jumps. */
typedef struct {
    int64_t length;
    int weight;
    int sign;
} walk;

ALWAYS_INLINE int
naf_weight(uint64_t x)
{
    return __builtin_popcountll(x ^ (3 * x));
}

static inline int
top_exponent(int64_t n)
{
    return 63 - __builtin_clzll((unsigned long long)n);
}

/* The first lightest walk of 0 < d < n; see `_lightest` in distance.py. */
ALWAYS_INLINE walk
lightest_inline(int64_t n, int64_t d)
{
    const int top = top_exponent(n);
    const int64_t below_top = ((int64_t)1 << top) - 1;
    int64_t ahead = d, behind = n - d;
    int64_t shorter = ahead < behind ? ahead : behind;
    int64_t best_length = 0;
    int best = INT32_MAX, best_sign = 1;

    do {
        int weight = (int)(ahead >> top) + naf_weight((uint64_t)(ahead & below_top));
        int other = (int)(behind >> top) + naf_weight((uint64_t)(behind & below_top));
        best_sign = weight < best ? 1 : best_sign;
        best_length = weight < best ? ahead : best_length;
        best = weight < best ? weight : best;
        best_sign = other < best ? -1 : best_sign;
        best_length = other < best ? behind : best_length;
        best = other < best ? other : best;
        ahead += n;
        behind += n;
        shorter += n;
        /* Where n is a power of two, another loop only adds to the top. */
    } while (below_top != n - 1 && shorter >> top < best);
    return (walk){best_length, best, best_sign};
}

/* The jump that `_fold` in distance.py keeps of those that lead to the same neighbor. */
ALWAYS_INLINE int64_t
canonical(int64_t n, int64_t jump)
{
    const int64_t top = (int64_t)1 << top_exponent(n);
    const int64_t rest = n - top;

    if (rest == 0)
        return jump == -(top >> 1) ? -jump : jump;
    if ((rest & (rest - 1)) == 0)
        return jump == top ? -rest : jump == -top ? rest : jump;
    return jump;
}

ALWAYS_INLINE int64_t
first_hop_inline(int64_t n, int64_t d)
{
    const int64_t top = (int64_t)1 << top_exponent(n);
    const walk best = lightest_inline(n, d);
    const int64_t rest = best.length & (top - 1);
    const int64_t low = rest & -rest;
    const int64_t digit = rest == 0 ? top : rest & (low << 1) ? -low : low;

    return canonical(n, best.sign * digit);
}

/* The bits of `others` that follow a head, or another such bit, two places below it. */
ALWAYS_INLINE uint64_t
chained(uint64_t heads, uint64_t others)
{
    uint64_t turned = (heads >> 2) & others, run = others;

    for (int shift = 2; shift <= 16; shift *= 2) {
        turned |= run & (turned >> shift);
        run &= run >> shift;
    }
    return turned;
}

/* Every jump that starts a shortest path: bit i is +2^i, bit 32 + i is -2^i. 0 < d < n. */
ALWAYS_INLINE uint64_t
optimal_jumps_inline(int64_t n, int64_t d)
{
    const int exponent = top_exponent(n);
    const uint64_t top = (uint64_t)1 << exponent;
    const int64_t rest_of_n = n - (int64_t)top;
    const int best = lightest_inline(n, d).weight;
    uint64_t masks[2] = {0, 0}; /* forward, backward */
    int64_t lengths[2] = {d, n - d};

    while ((lengths[0] < lengths[1] ? lengths[0] : lengths[1]) >> exponent <= best) {
        for (int side = 0; side < 2; side++) {
            const uint64_t loops = (uint64_t)lengths[side] >> exponent;
            const uint64_t x = (uint64_t)lengths[side] & (top - 1);
            if ((int)loops + naf_weight(x) == best) {
                const uint64_t plus = ((3 * x) & ~x) >> 1, minus = (x & ~(3 * x)) >> 1;
                const uint64_t up = chained(plus, minus), down = chained(minus, plus);
                masks[side] |= plus | up | up << 1 | (loops ? top : 0);
                masks[!side] |= minus | down | down << 1;
            }
            lengths[side] += n;
        }
    }
    if (rest_of_n == 0) {
        const uint64_t half = top >> 1;
        masks[0] |= masks[1] & half;
        masks[1] &= ~half;
    } else if ((rest_of_n & (rest_of_n - 1)) == 0) {
        const uint64_t forward = masks[0];
        masks[0] = (forward & ~top) | (masks[1] & top ? (uint64_t)rest_of_n : 0);
        masks[1] = (masks[1] & ~top) | (forward & top ? (uint64_t)rest_of_n : 0);
    }
    return masks[0] | masks[1] << 32;
}

/* The same code once for every machine and once with the instruction that counts bits. */
typedef struct {
    walk (*lightest)(int64_t n, int64_t d);
    int64_t (*first_hop)(int64_t n, int64_t d);
    uint64_t (*optimal_jumps)(int64_t n, int64_t d);
} arithmetic;

#define ARITHMETIC(name, attribute)                                                             \
    attribute static walk lightest_##name(int64_t n, int64_t d)                                 \
    {                                                                                           \
        return lightest_inline(n, d);                                                           \
    }                                                                                           \
    attribute static int64_t first_hop_##name(int64_t n, int64_t d)                             \
    {                                                                                           \
        return first_hop_inline(n, d);                                                          \
    }                                                                                           \
    attribute static uint64_t optimal_jumps_##name(int64_t n, int64_t d)                        \
    {                                                                                           \
        return optimal_jumps_inline(n, d);                                                      \
    }                                                                                           \
    static const arithmetic name = {lightest_##name, first_hop_##name, optimal_jumps_##name};

ARITHMETIC(portable, )
#if defined(__x86_64__)
ARITHMETIC(with_popcnt, __attribute__((target("popcnt"))))
#endif

/* Written once, before any other use, always with the same value. */
static const arithmetic *route = &portable;

static void
choose_arithmetic(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("popcnt"))
        route = &with_popcnt;
#endif
}

/* One of `count` choices by hash; see `_spread` in reference.py. */
static inline uint32_t
spread(uint64_t flow, uint32_t self_id, uint32_t count)
{
    uint64_t x = flow + ((uint64_t)self_id + 1) * UINT64_C(0x9E3779B97F4A7C15);

    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    x ^= x >> 31;
    return (uint32_t)(((x >> 32) * count) >> 32);
}

/* ---- arguments -------------------------------------------------------------------------- */

typedef struct {
    PyObject *graph_error;
    PyTypeObject *snapshot_type;
} module_state;

/* Store `object` as a number within low..high, or set GraphError (TypeError) and return -1. */
static int
as_number(PyObject *object, const char *what, int64_t low, int64_t high, PyObject *graph_error,
          int64_t *number)
{
    int overflow;
    PyObject *integer = PyNumber_Index(object);

    if (integer == NULL)
        return -1;
    *number = PyLong_AsLongLongAndOverflow(integer, &overflow);
    if (*number == -1 && PyErr_Occurred()) {
        Py_DECREF(integer);
        return -1;
    }
    if (overflow != 0 || *number < low || *number > high) {
        PyErr_Format(graph_error, "%s %S is not within %lld..%lld", what, integer,
                     (long long)low, (long long)high);
        Py_DECREF(integer);
        return -1;
    }
    Py_DECREF(integer);
    return 0;
}

static int
as_flow(PyObject *object, PyObject *graph_error, uint64_t *flow)
{
    PyObject *integer = PyNumber_Index(object);

    if (integer == NULL)
        return -1;
    *flow = PyLong_AsUnsignedLongLong(integer);
    if (*flow == (uint64_t)-1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError))
            PyErr_Format(graph_error, "flow %S is not within 0..2**64-1", integer);
        Py_DECREF(integer);
        return -1;
    }
    Py_DECREF(integer);
    return 0;
}

/* Sort positional and keyword arguments into `found`, which is `most` long; -1 on error. */
static int
bind(const char *function, const char *const *names, Py_ssize_t least, Py_ssize_t most,
     PyObject *const *args, Py_ssize_t count, PyObject *keywords, PyObject **found)
{
    const Py_ssize_t named = keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords);

    if (count > most) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %zd arguments", function, most);
        return -1;
    }
    for (Py_ssize_t i = 0; i < most; i++)
        found[i] = i < count ? args[i] : NULL;
    for (Py_ssize_t k = 0; k < named; k++) {
        PyObject *keyword = PyTuple_GET_ITEM(keywords, k);
        Py_ssize_t i = 0;
        while (i < most && PyUnicode_CompareWithASCIIString(keyword, names[i]) != 0)
            i++;
        if (i == most || found[i] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected argument '%U'", function,
                         keyword);
            return -1;
        }
        found[i] = args[count + k];
    }
    for (Py_ssize_t i = 0; i < least; i++) {
        if (found[i] == NULL) {
            PyErr_Format(PyExc_TypeError, "%s() misses the argument '%s'", function, names[i]);
            return -1;
        }
    }
    return 0;
}

#define BIND(function, least, ...)                                                              \
    static const char *const names[] = {__VA_ARGS__};                                           \
    PyObject *given[Py_ARRAY_LENGTH(names)];                                                    \
    if (bind(function, names, least, Py_ARRAY_LENGTH(names), args, count, keywords, given) < 0) \
        return NULL;

/* ---- ranks ------------------------------------------------------------------------------ */

/* Item `i` of a sequence of ids. */
static int
item_of(PyObject *outside, Py_ssize_t i, int64_t *id)
{
    PyObject *item = PySequence_GetItem(outside, i), *integer;

    if (item == NULL)
        return -1;
    integer = PyNumber_Index(item);
    Py_DECREF(item);
    if (integer == NULL)
        return -1;
    *id = PyLong_AsLongLong(integer);
    Py_DECREF(integer);
    return *id == -1 && PyErr_Occurred() ? -1 : 0;
}

static int
rank_among(int64_t id, PyObject *outside, Py_ssize_t length, PyObject *graph_error,
           int64_t *rank)
{
    Py_ssize_t low = 0, high = length;
    int64_t item;

    while (low < high) {
        const Py_ssize_t middle = low + (high - low) / 2;
        if (item_of(outside, middle, &item) < 0)
            return -1;
        if (item < id)
            low = middle + 1;
        else if (item > id)
            high = middle;
        else {
            PyErr_Format(graph_error, "id %lld is outside the layout", (long long)id);
            return -1;
        }
    }
    *rank = id - low;
    return 0;
}

static int
id_among(int64_t rank, PyObject *outside, Py_ssize_t length, int64_t *id)
{
    Py_ssize_t low = 0, high = length;
    int64_t item;

    while (low < high) {
        const Py_ssize_t middle = low + (high - low) / 2;
        if (item_of(outside, middle, &item) < 0)
            return -1;
        if (item <= rank + middle)
            low = middle + 1;
        else
            high = middle;
    }
    *id = rank + low;
    return 0;
}

/* The ranks linked to `rank`, each once, unsorted; at most 64. */
static int
neighbor_ranks(int64_t n, int64_t rank, int64_t *ranks)
{
    int found = 0;

    for (int i = 0; ((int64_t)1 << i) < n; i++) {
        const int64_t around[2] = {((int64_t)1 << i), n - ((int64_t)1 << i)};
        for (int side = 0; side < 2; side++) {
            const int64_t to = (rank + around[side]) % n;
            int known = 0;
            for (int k = 0; k < found; k++)
                known |= ranks[k] == to;
            if (!known)
                ranks[found++] = to;
        }
    }
    return found;
}

static int
ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* The neighbors of an id of a layout, ascending; their number, or -1 with an exception. */
static int
neighbors_among(int64_t id, int64_t id_space, PyObject *outside, Py_ssize_t length,
                PyObject *graph_error, int64_t *ids)
{
    const int64_t n = id_space - length;
    int64_t rank;
    int found;

    if (length > id_space) {
        PyErr_Format(graph_error, "%zd ids are outside a space of %lld", length,
                     (long long)id_space);
        return -1;
    }
    if (rank_among(id, outside, length, graph_error, &rank) < 0)
        return -1;
    if (rank < 0 || rank >= n) {
        PyErr_Format(graph_error, "rank %lld is not within 0..%lld", (long long)rank,
                     (long long)n - 1);
        return -1;
    }
    found = neighbor_ranks(n, rank, ids);
    for (int i = 0; i < found; i++) {
        if (id_among(ids[i], outside, length, &ids[i]) < 0)
            return -1;
    }
    qsort(ids, (size_t)found, sizeof *ids, ascending);
    return found;
}

static PyObject *
tuple_of(const int64_t *numbers, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);

    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (number == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}

/* ---- functions -------------------------------------------------------------------------- */

/* The checked arguments (n, distance) of the hop functions, the distance modulo n. */
static int
as_distance(PyObject *module, PyObject *const *given, int64_t *n, int64_t *d)
{
    PyObject *graph_error = ((module_state *)PyModule_GetState(module))->graph_error;

    if (as_number(given[0], "size", 1, SIZE_MAX_RANKS, graph_error, n) < 0)
        return -1;
    if (as_number(given[1], "distance", 1 - *n, *n - 1, graph_error, d) < 0)
        return -1;
    *d += *d < 0 ? *n : 0;
    return 0;
}

static PyObject *
hop_count(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    int64_t n, d;

    BIND("hop_count", 2, "n", "distance")
    if (as_distance(module, given, &n, &d) < 0)
        return NULL;
    return PyLong_FromLong(d == 0 ? 0 : route->lightest(n, d).weight);
}

static int
as_distance_to_another(PyObject *module, PyObject *const *given, int64_t *n, int64_t *d)
{
    if (as_distance(module, given, n, d) < 0)
        return -1;
    if (*d == 0) {
        PyErr_SetString(((module_state *)PyModule_GetState(module))->graph_error,
                        "distance 0 has no first hop");
        return -1;
    }
    return 0;
}

static PyObject *
first_hop(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    int64_t n, d;

    BIND("first_hop", 2, "n", "distance")
    if (as_distance_to_another(module, given, &n, &d) < 0)
        return NULL;
    return PyLong_FromLongLong(route->first_hop(n, d));
}

static PyObject *
first_hops(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    int64_t n, d, jumps[64];
    int found = 0;
    uint64_t optimal;

    BIND("first_hops", 2, "n", "distance")
    if (as_distance_to_another(module, given, &n, &d) < 0)
        return NULL;
    optimal = route->optimal_jumps(n, d);
    for (int i = 31; i >= 0; i--) {
        if (optimal >> (32 + i) & 1)
            jumps[found++] = -((int64_t)1 << i);
    }
    for (int i = 0; i < 32; i++) {
        if (optimal >> i & 1)
            jumps[found++] = (int64_t)1 << i;
    }
    return tuple_of(jumps, found);
}

static PyObject *
rank_of(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *graph_error = ((module_state *)PyModule_GetState(module))->graph_error;
    int64_t id, rank;
    Py_ssize_t length;

    BIND("rank_of", 2, "node_id", "outside")
    if (as_number(given[0], "id", 0, SIZE_MAX_RANKS - 1, graph_error, &id) < 0)
        return NULL;
    length = PySequence_Size(given[1]);
    if (length < 0 || rank_among(id, given[1], length, graph_error, &rank) < 0)
        return NULL;
    return PyLong_FromLongLong(rank);
}

static PyObject *
id_of(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *graph_error = ((module_state *)PyModule_GetState(module))->graph_error;
    int64_t id, rank;
    Py_ssize_t length;

    BIND("id_of", 2, "rank", "outside")
    if (as_number(given[0], "rank", 0, SIZE_MAX_RANKS - 1, graph_error, &rank) < 0)
        return NULL;
    length = PySequence_Size(given[1]);
    if (length < 0 || id_among(rank, given[1], length, &id) < 0)
        return NULL;
    return PyLong_FromLongLong(id);
}

static PyObject *
neighbor_ids(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *graph_error = ((module_state *)PyModule_GetState(module))->graph_error;
    int64_t id, id_space, ids[64];
    Py_ssize_t length;
    int found;

    BIND("neighbor_ids", 3, "self_id", "id_space", "outside")
    if (as_number(given[1], "id space", 1, SIZE_MAX_RANKS, graph_error, &id_space) < 0)
        return NULL;
    if (as_number(given[0], "id", 0, id_space - 1, graph_error, &id) < 0)
        return NULL;
    length = PySequence_Size(given[2]);
    if (length < 0)
        return NULL;
    found = neighbors_among(id, id_space, given[2], length, graph_error, ids);
    return found < 0 ? NULL : tuple_of(ids, found);
}

/* The items of one ascending array that are not in another, as a tuple. */
static PyObject *
only_in(const int64_t *these, int count, const int64_t *others, int other_count)
{
    int64_t left[64];
    int found = 0;

    for (int i = 0, k = 0; i < count; i++) {
        while (k < other_count && others[k] < these[i])
            k++;
        if (k == other_count || others[k] != these[i])
            left[found++] = these[i];
    }
    return tuple_of(left, found);
}

static PyObject *
link_changes(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *graph_error = ((module_state *)PyModule_GetState(module))->graph_error;
    int64_t id, id_space, before[64], after[64];
    PyObject *nobody, *added, *removed;
    Py_ssize_t length;
    int before_count, after_count;

    BIND("link_changes", 3, "id_space", "self_id", "outside")
    if (as_number(given[0], "id space", 1, SIZE_MAX_RANKS, graph_error, &id_space) < 0)
        return NULL;
    if (as_number(given[1], "id", 0, id_space - 1, graph_error, &id) < 0)
        return NULL;
    length = PySequence_Size(given[2]);
    if (length < 0)
        return NULL;
    nobody = PyTuple_New(0);
    if (nobody == NULL)
        return NULL;
    before_count = neighbors_among(id, id_space, nobody, 0, graph_error, before);
    Py_DECREF(nobody);
    if (before_count < 0)
        return NULL;
    after_count = neighbors_among(id, id_space, given[2], length, graph_error, after);
    if (after_count < 0)
        return NULL;
    added = only_in(after, after_count, before, before_count);
    removed = only_in(before, before_count, after, after_count);
    if (added == NULL || removed == NULL) {
        Py_XDECREF(added);
        Py_XDECREF(removed);
        return NULL;
    }
    return Py_BuildValue("(NN)", added, removed);
}

/* ---- snapshot --------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    int64_t generation;
    int64_t self_id;
    int64_t id_space;
    int64_t layout_size;
    int64_t rank; /* -1: outside the layout */
    uint32_t *outside;
    Py_ssize_t outside_count;
    uint32_t *peers; /* by slot: the number of a link within this snapshot */
    int64_t *links;
    Py_ssize_t link_count;
    uint32_t *buckets; /* open addressing over peers: slot + 1, or 0 */
    int bucket_shift;  /* 32 - log2 of the number of buckets */
    uint64_t linked;   /* the bits of optimal_jumps whose neighbor is linked */
    int32_t jump_slots[64];
} snapshot;

static inline uint32_t
bucket_of(const snapshot *self, uint32_t peer)
{
    return (peer * UINT32_C(2654435769)) >> self->bucket_shift;
}

/* The slot of the link to a peer, -1 without one. */
static inline int32_t
slot_of(const snapshot *self, uint32_t peer)
{
    const uint32_t last = UINT32_MAX >> self->bucket_shift;

    for (uint32_t at = bucket_of(self, peer); self->buckets[at] != 0; at = (at + 1) & last) {
        const uint32_t slot = self->buckets[at] - 1;
        if (self->peers[slot] == peer)
            return (int32_t)slot;
    }
    return -1;
}

/* The rank of an id, -1 where it has none. */
static inline int64_t
snapshot_rank(const snapshot *self, int64_t id)
{
    Py_ssize_t low = 0, high = self->outside_count;

    if (id >= self->id_space)
        return -1;
    while (low < high) {
        const Py_ssize_t middle = low + (high - low) / 2;
        if (self->outside[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < self->outside_count && self->outside[low] == id ? -1 : id - low;
}

static int64_t
snapshot_id(const snapshot *self, int64_t rank)
{
    Py_ssize_t low = 0, high = self->outside_count;

    while (low < high) {
        const Py_ssize_t middle = low + (high - low) / 2;
        if ((int64_t)self->outside[middle] <= rank + middle)
            low = middle + 1;
        else
            high = middle;
    }
    return rank + low;
}

/* The linked jumps that do not lead back to `came_from`. */
static uint64_t
jumps_without(const snapshot *self, int64_t came_from)
{
    uint64_t usable = self->linked;

    if (came_from < 0)
        return usable;
    for (uint64_t left = self->linked; left != 0; left &= left - 1) {
        const int bit = __builtin_ctzll(left);
        if ((int64_t)self->peers[self->jump_slots[bit]] == came_from)
            usable &= ~((uint64_t)1 << bit);
    }
    return usable;
}

/* The slot that a message goes out on, -1 without one; see `next_hop` in reference.py. */
static inline int32_t
choose(const snapshot *self, int64_t destination, uint64_t usable, uint64_t flow)
{
    const int64_t rank = snapshot_rank(self, destination);
    int32_t slot;
    int64_t d;
    uint64_t live;
    int many;

    if (self->rank < 0 || rank < 0 || destination == self->self_id)
        return -1;
    slot = slot_of(self, (uint32_t)destination);
    if (slot >= 0)
        return slot;
    d = rank - self->rank;
    live = route->optimal_jumps(self->layout_size, d < 0 ? d + self->layout_size : d) & usable;
    if (live == 0)
        return -1;
    many = __builtin_popcountll(live);
    if (many > 1) {
        for (uint32_t skip = spread(flow, (uint32_t)self->self_id, (uint32_t)many); skip > 0; skip--)
            live &= live - 1;
    }
    return self->jump_slots[__builtin_ctzll(live)];
}

static int
take_outside(snapshot *self, PyObject *ids, PyObject *graph_error)
{
    int64_t id, before = -1;

    self->outside_count = PyTuple_GET_SIZE(ids);
    self->outside = PyMem_New(uint32_t, self->outside_count + 1);
    if (self->outside == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->outside_count; i++) {
        if (as_number(PyTuple_GET_ITEM(ids, i), "outside the layout: id", 0, self->id_space - 1,
                      graph_error, &id) < 0)
            return -1;
        if (id <= before) {
            PyErr_SetString(graph_error, "the ids outside the layout are not ascending");
            return -1;
        }
        self->outside[i] = (uint32_t)id;
        before = id;
    }
    return 0;
}

static int
allocate_links(snapshot *self, Py_ssize_t count)
{
    int bits = 1;

    if (count > (Py_ssize_t)1 << 24) {
        PyErr_NoMemory();
        return -1;
    }
    while ((Py_ssize_t)1 << bits < 2 * count)
        bits++;
    self->bucket_shift = 32 - bits;
    self->link_count = count;
    self->peers = PyMem_New(uint32_t, count + 1);
    self->links = PyMem_New(int64_t, count + 1);
    self->buckets = PyMem_Calloc((size_t)1 << bits, sizeof *self->buckets);
    if (self->peers == NULL || self->links == NULL || self->buckets == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* Take one (peer id, link id). */
static int
take_link(snapshot *self, Py_ssize_t slot, PyObject *item, PyObject *graph_error)
{
    const uint32_t last = UINT32_MAX >> self->bucket_shift;
    PyObject *pair = PySequence_Tuple(item);
    int64_t peer, link;
    uint32_t at;

    if (pair == NULL)
        return -1;
    if (PyTuple_GET_SIZE(pair) != 2) {
        PyErr_SetString(PyExc_ValueError, "a link is (peer id, link id)");
        Py_DECREF(pair);
        return -1;
    }
    if (as_number(PyTuple_GET_ITEM(pair, 0), "peer", 0, SIZE_MAX_RANKS - 1, graph_error, &peer) < 0
        || as_number(PyTuple_GET_ITEM(pair, 1), "link id", 1, INT64_MAX, graph_error, &link) < 0) {
        Py_DECREF(pair);
        return -1;
    }
    Py_DECREF(pair);
    if (peer == self->self_id || slot_of(self, (uint32_t)peer) >= 0) {
        PyErr_Format(graph_error, "peer %lld cannot be linked, or is linked twice",
                     (long long)peer);
        return -1;
    }
    self->peers[slot] = (uint32_t)peer;
    self->links[slot] = link;
    for (at = bucket_of(self, (uint32_t)peer); self->buckets[at] != 0;)
        at = (at + 1) & last;
    self->buckets[at] = (uint32_t)slot + 1;
    return 0;
}

static int
take_links(snapshot *self, PyObject *items, PyObject *graph_error)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(items);
    int64_t *sorted;

    if (allocate_links(self, count) < 0)
        return -1;
    for (Py_ssize_t slot = 0; slot < count; slot++) {
        if (take_link(self, slot, PyTuple_GET_ITEM(items, slot), graph_error) < 0)
            return -1;
    }
    sorted = PyMem_New(int64_t, count + 1);
    if (sorted == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(sorted, self->links, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, ascending);
    for (Py_ssize_t i = 1; i < count; i++) {
        if (sorted[i] == sorted[i - 1]) {
            PyErr_SetString(graph_error, "two peers have the same link id");
            PyMem_Free(sorted);
            return -1;
        }
    }
    PyMem_Free(sorted);
    return 0;
}

static void
link_every_jump(snapshot *self)
{
    const int64_t n = self->layout_size;

    for (int i = 0; self->rank >= 0 && ((int64_t)1 << i) < n; i++) {
        const int64_t around[2] = {(int64_t)1 << i, n - ((int64_t)1 << i)};
        for (int side = 0; side < 2; side++) {
            const int64_t id = snapshot_id(self, (self->rank + around[side]) % n);
            const int bit = 32 * side + i;
            self->jump_slots[bit] = slot_of(self, (uint32_t)id);
            if (self->jump_slots[bit] >= 0)
                self->linked |= (uint64_t)1 << bit;
        }
    }
}

static int
snapshot_fill(snapshot *self, PyObject *const *given, PyObject *graph_error)
{
    PyObject *sequence;
    int failed;

    if (as_number(given[0], "generation", 0, INT64_MAX, graph_error, &self->generation) < 0
        || as_number(given[2], "id space", 1, SIZE_MAX_RANKS, graph_error, &self->id_space) < 0
        || as_number(given[1], "id", 0, self->id_space - 1, graph_error, &self->self_id) < 0)
        return -1;
    sequence = PySequence_Tuple(given[3]);
    if (sequence == NULL)
        return -1;
    failed = take_outside(self, sequence, graph_error);
    Py_DECREF(sequence);
    if (failed)
        return -1;
    sequence = PySequence_Tuple(given[4]);
    if (sequence == NULL)
        return -1;
    failed = take_links(self, sequence, graph_error);
    Py_DECREF(sequence);
    if (failed)
        return -1;
    self->layout_size = self->id_space - self->outside_count;
    self->rank = snapshot_rank(self, self->self_id);
    link_every_jump(self);
    return 0;
}

static PyObject *
snapshot_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"generation", "self_id", "id_space", "outside", "links", NULL};
    PyObject *given[5];
    module_state *state = PyType_GetModuleState(type);
    snapshot *self;

    if (state == NULL
        || !PyArg_ParseTupleAndKeywords(args, keywords, "OOOOO:Snapshot", names, &given[0],
                                        &given[1], &given[2], &given[3], &given[4]))
        return NULL;
    self = (snapshot *)type->tp_alloc(type, 0);
    if (self != NULL && snapshot_fill(self, given, state->graph_error) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void
snapshot_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    snapshot *self = (snapshot *)object;

    PyMem_Free(self->outside);
    PyMem_Free(self->peers);
    PyMem_Free(self->links);
    PyMem_Free(self->buckets);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *
snapshot_next_hop(PyObject *object, PyTypeObject *type, PyObject *const *args, Py_ssize_t count,
                  PyObject *keywords)
{
    PyObject *graph_error = ((module_state *)PyType_GetModuleState(type))->graph_error;
    const snapshot *self = (const snapshot *)object;
    int64_t destination, came_from = -1;
    uint64_t flow = 0;
    int32_t slot;

    BIND("next_hop", 1, "destination", "came_from", "flow")
    if (as_number(given[0], "destination", 0, U32_LIMIT - 1, graph_error, &destination) < 0)
        return NULL;
    if (given[1] != NULL
        && as_number(given[1], "came_from", -1, U32_LIMIT - 1, graph_error, &came_from) < 0)
        return NULL;
    if (given[2] != NULL && as_flow(given[2], graph_error, &flow) < 0)
        return NULL;
    slot = choose(self, destination, jumps_without(self, came_from), flow);
    return PyLong_FromLongLong(slot < 0 ? -1 : self->links[slot]);
}

/* ---- splitter --------------------------------------------------------------------------- */

/* The numbers of bmgd/routing/header.py. */
enum {
    LENGTH_BYTES = 4,
    BODY_PREFIX_BYTES = 3,
    HEADER_BYTES = 32,
    BODY_BYTES_MIN = BODY_PREFIX_BYTES + HEADER_BYTES,
    FRAME_BYTES_MAX = 83968,
    ARRAY_FIRST = 0x91,
    ARRAY_LAST = 0x9f,
    BIN_8 = 0xc4,
    KIND_AT = 0,
    FLAGS_AT = 1,
    PRIORITY_AT = 2,
    HOP_BUDGET_AT = 3,
    DESTINATION_AT = 4,
    SOURCE_AT = 8,
    LINK_LOCAL_FIRST = 0x01,
    LINK_LOCAL_LAST = 0x3f,
    ROUTED_FIRST = 0x40,
    ROUTED_LAST = 0x7f,
    FLAG_CAREFUL = 0x01,
    FLAG_RECORD = 0x02
};

#define BAD_LENGTH "bad frame length"
#define BAD_HEADER "no routing header"
#define BAD_KIND "unknown kind"

enum { STACK_FRAMES = 1024, STACK_RUNS = 256, RELEASE_GIL_BYTES = 32768 };

/* Urgent frames (priority 0) and others go out on one link in runs of their own. */
enum { RUNS_PER_LINK = 2 };

/* A whole frame, its length prefix included, and the run that it joins; -1 is the core. */
typedef struct {
    size_t at;
    uint32_t length;
    int32_t run;
} frame;

/* What goes out on one link at one urgency; its number is 2 * slot, plus 1 if not urgent. */
typedef struct {
    size_t length;
    char *cursor;
    PyObject *bytes;
} run;

/* What the first pass over a chunk finds; the arrays are the caller's. */
typedef struct {
    frame *frames;
    size_t frame_count;
    size_t core_count;
    run *runs;      /* by number */
    int32_t *order; /* numbers in order of first use */
    Py_ssize_t run_count;
    size_t consumed;
    const char *error;
} chunk;

static inline uint32_t
big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* The reason why a whole frame's body is malformed, or NULL. */
static inline const char *
malformed(const uint8_t *body)
{
    const uint8_t kind = body[BODY_PREFIX_BYTES + KIND_AT];

    if (body[0] < ARRAY_FIRST || body[0] > ARRAY_LAST || body[1] != BIN_8
        || body[2] != HEADER_BYTES)
        return BAD_HEADER;
    return kind < LINK_LOCAL_FIRST || kind > ROUTED_LAST ? BAD_KIND : NULL;
}

/* The run for a well-formed frame, its hop budget spent; -1 for the core. */
static inline int32_t
relay(const snapshot *self, uint8_t *header, uint64_t usable)
{
    const uint32_t destination = big_endian(header + DESTINATION_AT);
    const uint64_t flow = (uint64_t)big_endian(header + SOURCE_AT) << 32 | destination;
    int32_t slot;

    if (header[KIND_AT] <= LINK_LOCAL_LAST || header[FLAGS_AT] & (FLAG_CAREFUL | FLAG_RECORD)
        || header[HOP_BUDGET_AT] == 0)
        return -1;
    slot = choose(self, destination, usable, flow);
    if (slot < 0)
        return -1;
    header[HOP_BUDGET_AT]--;
    return RUNS_PER_LINK * slot + (header[PRIORITY_AT] != 0);
}

/* The first pass: find the frames, decide where each goes. Touches no Python object. */
static void
find_frames(const snapshot *self, uint8_t *bytes, size_t end, uint64_t usable, chunk *found)
{
    size_t at = 0;

    while (end - at >= LENGTH_BYTES) {
        const size_t length = big_endian(bytes + at);
        uint8_t *body = bytes + at + LENGTH_BYTES;
        int32_t number;

        if (length < BODY_BYTES_MIN || length > FRAME_BYTES_MAX) {
            found->error = BAD_LENGTH;
            break;
        }
        if (end - at - LENGTH_BYTES < length)
            break;
        found->error = malformed(body);
        if (found->error != NULL)
            break;
        number = relay(self, body + BODY_PREFIX_BYTES, usable);
        found->frames[found->frame_count++] =
            (frame){at, (uint32_t)(LENGTH_BYTES + length), number};
        if (number < 0)
            found->core_count++;
        else {
            if (found->runs[number].length == 0)
                found->order[found->run_count++] = number;
            found->runs[number].length += LENGTH_BYTES + length;
        }
        at += LENGTH_BYTES + length;
    }
    found->consumed = at;
}

/* The second pass: one bytes object per run, one per frame for the core. -1 on no memory. */
static int
copy_frames(const char *bytes, chunk *found, PyObject *for_core)
{
    Py_ssize_t core = 0;

    for (Py_ssize_t i = 0; i < found->run_count; i++) {
        run *out = &found->runs[found->order[i]];
        out->bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)out->length);
        if (out->bytes == NULL)
            return -1;
        out->cursor = PyBytes_AS_STRING(out->bytes);
    }
    for (size_t i = 0; i < found->frame_count; i++) {
        const frame *each = &found->frames[i];
        if (each->run >= 0) {
            run *out = &found->runs[each->run];
            memcpy(out->cursor, bytes + each->at, each->length);
            out->cursor += each->length;
        } else {
            PyObject *body = PyBytes_FromStringAndSize(
                bytes + each->at + LENGTH_BYTES, (Py_ssize_t)each->length - LENGTH_BYTES);
            if (body == NULL)
                return -1;
            PyList_SET_ITEM(for_core, core++, body);
        }
    }
    return 0;
}

/* Both passes; the arrays of `found` are long enough. */
static PyObject *
split_into(const snapshot *self, Py_buffer *view, size_t end, int64_t came_from, chunk *found)
{
    const uint64_t usable = jumps_without(self, came_from);
    PyObject *runs = NULL, *for_core = NULL;

    memset(found->runs, 0, RUNS_PER_LINK * (size_t)self->link_count * sizeof *found->runs);
    if (end >= RELEASE_GIL_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        find_frames(self, view->buf, end, usable, found);
        Py_END_ALLOW_THREADS
    } else
        find_frames(self, view->buf, end, usable, found);

    runs = PyList_New(found->run_count);
    for_core = PyList_New((Py_ssize_t)found->core_count);
    if (runs == NULL || for_core == NULL || copy_frames(view->buf, found, for_core) < 0)
        goto failed;
    for (Py_ssize_t i = 0; i < found->run_count; i++) {
        run *out = &found->runs[found->order[i]];
        const long long link = self->links[found->order[i] / RUNS_PER_LINK];
        PyObject *pair = Py_BuildValue("(LO)", link, out->bytes);
        if (pair == NULL)
            goto failed;
        PyList_SET_ITEM(runs, i, pair);
        Py_CLEAR(out->bytes);
    }
    return Py_BuildValue("(nNNz)", (Py_ssize_t)found->consumed, runs, for_core, found->error);

failed:
    for (Py_ssize_t i = 0; i < found->run_count; i++)
        Py_CLEAR(found->runs[found->order[i]].bytes);
    Py_XDECREF(runs);
    Py_XDECREF(for_core);
    return NULL;
}

/* Find room for the arrays: on the stack for most chunks, else in one block. */
static PyObject *
split_view(const snapshot *self, Py_buffer *view, size_t end, int64_t came_from)
{
    const size_t most_frames = end / (LENGTH_BYTES + BODY_BYTES_MIN);
    const size_t most_runs = RUNS_PER_LINK * (size_t)self->link_count;
    frame stack_frames[STACK_FRAMES];
    run stack_runs[STACK_RUNS];
    int32_t stack_order[STACK_RUNS];
    chunk found = {.frames = stack_frames, .runs = stack_runs, .order = stack_order};
    char *block = NULL;
    PyObject *result;

    if (most_frames > STACK_FRAMES || most_runs > STACK_RUNS) {
        block = PyMem_Malloc(most_frames * sizeof(frame)
                             + most_runs * (sizeof(run) + sizeof(int32_t)) + 1);
        if (block == NULL)
            return PyErr_NoMemory();
        found.frames = (frame *)block;
        found.runs = (run *)(found.frames + most_frames);
        found.order = (int32_t *)(found.runs + most_runs);
    }
    result = split_into(self, view, end, came_from, &found);
    PyMem_Free(block);
    return result;
}

static PyObject *
snapshot_split(PyObject *object, PyTypeObject *type, PyObject *const *args, Py_ssize_t count,
               PyObject *keywords)
{
    PyObject *graph_error = ((module_state *)PyType_GetModuleState(type))->graph_error;
    int64_t end, came_from;
    Py_buffer view;
    PyObject *result = NULL;

    BIND("split", 3, "buffer", "end", "came_from")
    if (PyObject_GetBuffer(given[0], &view, PyBUF_WRITABLE) < 0)
        return NULL;
    if (as_number(given[1], "end", 0, view.len, graph_error, &end) == 0
        && as_number(given[2], "came_from", -1, U32_LIMIT - 1, graph_error, &came_from) == 0)
        result = split_view((const snapshot *)object, &view, (size_t)end, came_from);
    PyBuffer_Release(&view);
    return result;
}

/* ---- papers ----------------------------------------------------------------------------- */

/* The papers' own algorithms; bmgd/routing/papers/ has the same in Python, one module each, with
 * the reasons. Distances are 1..n-1; a first hop is a jump, to be added to the own rank modulo n. */

/* What an algorithm may use: the graph, its parameter, and arrays of n entries. */
typedef struct {
    int64_t n;
    int depth;      /* the levels of variant, the loops of equivalence */
    int32_t *table; /* a next hop per distance, or the parents of a search */
    int32_t *queue;
} paper;

/* A walk around the ring: bits up to the top are jumps, what is above it counts tops. */
typedef struct {
    uint64_t ahead;  /* in the direction of `sign` */
    uint64_t behind; /* in the other one */
    int weight;
    int sign;
} form;

static inline int64_t
clockwise(int64_t n, int64_t d)
{
    return d < 0 ? d + n : d >= n ? d - n : d;
}

static int64_t
table_first_hop(const paper *on, int64_t d)
{
    return on->table[d];
}

/* Routing Algorithm 1: breadth-first search, then back along the parents. */
static int64_t
bfs_first_hop(const paper *on, int64_t d)
{
    const int32_t n = (int32_t)on->n;
    int32_t *parent = on->table, *queue = on->queue;
    int32_t head = 0, tail = 0, at = (int32_t)d;

    memset(parent, 0xff, (size_t)n * sizeof *parent);
    parent[0] = 0;
    queue[tail++] = 0;
    while (parent[d] < 0) {
        const int32_t from = queue[head++];
        for (int32_t jump = 1; jump < n; jump *= 2) {
            const int32_t around[2] = {(from + jump) % n, (from + n - jump) % n};
            for (int side = 0; side < 2; side++) {
                if (parent[around[side]] < 0) {
                    parent[around[side]] = from;
                    queue[tail++] = around[side];
                }
            }
        }
    }
    while (parent[at] != 0)
        at = parent[at];
    return at;
}

/* Routing Algorithm 2: the neighbor that is closest to the destination on the ring. */
static int64_t
basic_first_hop(const paper *on, int64_t d)
{
    const int64_t n = on->n;
    int64_t closest = n, chosen = 0;

    for (int64_t jump = 1; jump < n; jump *= 2) {
        for (int64_t signed_jump = jump, side = 0; side < 2; side++, signed_jump = -jump) {
            const int64_t rest = clockwise(n, d - signed_jump);
            const int64_t left = rest < n - rest ? rest : n - rest;
            if (left < closest) {
                closest = left;
                chosen = signed_jump;
            }
        }
    }
    return chosen;
}

/* The first jump of a way to a rank d away, 0 <= d < n, that takes exactly `hops` hops; or 0. */
static int64_t
way_of(int64_t n, int64_t d, int hops)
{
    for (int64_t jump = 1; jump < n; jump *= 2) {
        for (int64_t signed_jump = jump, side = 0; side < 2; side++, signed_jump = -jump) {
            const int64_t rest = clockwise(n, d - signed_jump);
            if (hops == 1 ? rest == 0 : way_of(n, rest, hops - 1) != 0)
                return signed_jump;
        }
    }
    return 0;
}

/* ISPA07 §5.1: a neighbor that links the destination, or has a neighbor that does and so on. */
static int64_t
variant_first_hop(const paper *on, int64_t d)
{
    for (int hops = 1; hops <= on->depth + 1; hops++) {
        const int64_t jump = way_of(on->n, d, hops);
        if (jump != 0)
            return jump;
    }
    return basic_first_hop(on, d);
}

/* Routing Figure 5. */
#define LTB_2(n) n, n + 1, n + 1, n + 2
#define LTB_4(n) LTB_2(n), LTB_2(n + 1), LTB_2(n + 1), LTB_2(n + 2)
#define LTB_6(n) LTB_4(n), LTB_4(n + 1), LTB_4(n + 1), LTB_4(n + 2)

static const uint8_t LTB8[256] = {LTB_6(0), LTB_6(1), LTB_6(1), LTB_6(2)};

static inline int
lookup8(uint32_t x)
{
    return LTB8[x & 0xff] + LTB8[x >> 8 & 0xff] + LTB8[x >> 16 & 0xff] + LTB8[x >> 24];
}

/* HAKMEM item 169: the bits of every three, then of every six, then the sum modulo 63. */
static inline int
hakmem169(uint32_t x)
{
    const uint32_t threes = x - (x >> 1 & 033333333333) - (x >> 2 & 011111111111);

    return (int)(((threes + (threes >> 3)) & 030707070707) % 63);
}

/* Routing §3.1: the bits of the distance in the direction that has fewer. */
#define BIT_COUNTING(name, count)                                                               \
    ALWAYS_INLINE form name(const paper *on, int64_t d)                                              \
    {                                                                                           \
        const int clockwise_hops = count((uint32_t)d);                                          \
        const int other_hops = count((uint32_t)(on->n - d));                                    \
        const int turns = other_hops < clockwise_hops;                                          \
                                                                                                \
        return (form){.ahead = (uint64_t)(turns ? on->n - d : d),                               \
                      .weight = turns ? other_hops : clockwise_hops,                            \
                      .sign = turns ? -1 : 1};                                                  \
    }

BIT_COUNTING(bits_by_table, lookup8)
BIT_COUNTING(bits_in_parallel, hakmem169)

/* Routing Figure 8: the lower of the two lowest consecutive bits, or 0. */
ALWAYS_INLINE uint64_t
check_11(uint64_t d)
{
    uint64_t previous = UINT64_MAX;

    while (d) {
        const uint64_t low = d & -d;
        if (previous << 1 == low)
            return previous;
        d &= d - 1;
        previous = low;
    }
    return 0;
}

/* What the jumps of a length weigh once split: every top above the bits below it is one. */
ALWAYS_INLINE form
weighed(uint64_t ahead, uint64_t behind, int top, int sign)
{
    const uint64_t below_top = ((uint64_t)1 << top) - 1;

    return (form){ahead, behind,
                  (int)(ahead >> top) + __builtin_popcountll(ahead & below_top)
                      + __builtin_popcountll(behind),
                  sign};
}

/* Routing §3.2, the loop: add the lower consecutive bit to both directions. Pairs below the top are
 * those that are carried to no more than the top, so only these are looked for. */
ALWAYS_INLINE form
eliminated(int64_t length, int top, int sign)
{
    const uint64_t below_top = ((uint64_t)1 << top) - 1;
    uint64_t ahead = (uint64_t)length & below_top, behind = 0, low;

    while ((low = check_11(ahead)) != 0) {
        ahead += low;
        behind += low;
    }
    return weighed(((uint64_t)length & ~below_top) + ahead, behind, top, sign);
}

/* Routing Figure 7, the state machine, over the bits below the top. */
ALWAYS_INLINE form
transformed(int64_t length, int top, int sign)
{
    enum { OFF, FIRST_ONE, CLUSTER } state = OFF;
    uint64_t ahead = (uint64_t)length, behind = 0;

    for (int i = 0; i < top; i++) {
        const uint64_t bit = (uint64_t)1 << i;
        const int is_one = (ahead & bit) != 0;
        switch (state) {
        case OFF:
            state = is_one ? FIRST_ONE : OFF;
            break;
        case FIRST_ONE:
            if (is_one) {
                behind |= bit >> 1;
                ahead &= ~(bit | bit >> 1);
            }
            state = is_one ? CLUSTER : OFF;
            break;
        case CLUSTER:
            ahead ^= bit;
            state = is_one ? CLUSTER : FIRST_ONE;
            break;
        }
    }
    if (state == CLUSTER)
        ahead += (uint64_t)1 << top;
    return weighed(ahead, behind, top, sign);
}

ALWAYS_INLINE form
lighter(form one, form other)
{
    return other.weight < one.weight ? other : one;
}

ALWAYS_INLINE form
elimination(const paper *on, int64_t d)
{
    const int top = top_exponent(on->n);

    return lighter(eliminated(d, top, 1), eliminated(on->n - d, top, -1));
}

ALWAYS_INLINE form
elimination_by_states(const paper *on, int64_t d)
{
    const int top = top_exponent(on->n);

    return lighter(transformed(d, top, 1), transformed(on->n - d, top, -1));
}

/* Routing §3.3: the lightest of d + l * n and n - d + l * n for all l up to `depth` loops. */
ALWAYS_INLINE form
equivalence(const paper *on, int64_t d)
{
    const int top = top_exponent(on->n);
    int64_t ahead = d, behind = on->n - d;
    form best = lighter(eliminated(ahead, top, 1), eliminated(behind, top, -1));

    for (int loop = 1; loop <= on->depth; loop++) {
        ahead += on->n;
        behind += on->n;
        best = lighter(best, lighter(eliminated(ahead, top, 1), eliminated(behind, top, -1)));
    }
    return best;
}

/* Routing §1: optimal routing in undirected Chord, the least weight of the shorter way around. */
ALWAYS_INLINE form
undirected_chord(const paper *on, int64_t d)
{
    const int turns = on->n - d < d;
    const uint64_t x = (uint64_t)(turns ? on->n - d : d);

    return (form){(3 * x & ~x) >> 1, (x & ~(3 * x)) >> 1, naf_weight(x), turns ? -1 : 1};
}

/* The longest jump of a form; another order could lead a message out of its form. */
ALWAYS_INLINE int64_t
longest_jump(form way, int top)
{
    const uint64_t jumps = way.ahead | way.behind;
    const int highest = 63 - __builtin_clzll(jumps);
    const int64_t jump = (int64_t)1 << (highest < top ? highest : top);

    return highest < top && (way.behind >> highest & 1) ? -way.sign * jump : way.sign * jump;
}

static int64_t
exact_first_hop(const paper *on, int64_t d)
{
    return route->first_hop(on->n, d);
}

enum { LARGEST_TABLE = 1 << 24, DEPTH_MAX = 64, VARIANT_DEPTH_MAX = 3, HOPS_MAX = 64 };

/* An algorithm that counts hops has `split`; of the others a message is followed hop by hop. */
typedef struct {
    const char *name;
    int64_t (*first_hop)(const paper *on, int64_t d);
    form (*split)(const paper *on, int64_t d);
    int64_t largest;
    int deepest;
} algorithm;

/* A form's function and its first hop, compiled as `arithmetic` is, so that both count bits alike. */
#define FORM_OF(name, machine, attribute)                                                       \
    attribute static form name##_##machine(const paper *on, int64_t d)                          \
    {                                                                                           \
        return name(on, d);                                                                     \
    }                                                                                           \
    attribute static int64_t name##_first_hop_##machine(const paper *on, int64_t d)             \
    {                                                                                           \
        return longest_jump(name(on, d), top_exponent(on->n));                                  \
    }
#define FORM_ENTRY(text, name, machine, deepest)                                                \
    {text, name##_first_hop_##machine, name##_##machine, SIZE_MAX_RANKS, deepest}

#define ALGORITHMS(machine, attribute)                                                          \
    FORM_OF(bits_by_table, machine, attribute)                                                  \
    FORM_OF(bits_in_parallel, machine, attribute)                                               \
    FORM_OF(elimination, machine, attribute)                                                    \
    FORM_OF(elimination_by_states, machine, attribute)                                          \
    FORM_OF(equivalence, machine, attribute)                                                    \
    FORM_OF(undirected_chord, machine, attribute)                                               \
    static const algorithm algorithms_##machine[ALGORITHM_COUNT] = {                            \
        {"exact", exact_first_hop, NULL, SIZE_MAX_RANKS, 0},                                    \
        {"table", table_first_hop, NULL, LARGEST_TABLE, 0},                                     \
        {"bfs", bfs_first_hop, NULL, LARGEST_TABLE, 0},                                         \
        {"basic", basic_first_hop, NULL, SIZE_MAX_RANKS, 0},                                    \
        {"variant", variant_first_hop, NULL, SIZE_MAX_RANKS, VARIANT_DEPTH_MAX},                \
        FORM_ENTRY("bits-table", bits_by_table, machine, 0),                                    \
        FORM_ENTRY("bits-parallel", bits_in_parallel, machine, 0),                              \
        FORM_ENTRY("elimination", elimination, machine, 0),                                     \
        FORM_ENTRY("elimination-states", elimination_by_states, machine, 0),                    \
        FORM_ENTRY("equivalence", equivalence, machine, DEPTH_MAX),                             \
        FORM_ENTRY("undirected-chord", undirected_chord, machine, 0),                           \
    };

enum { ALGORITHM_COUNT = 11 };

ALGORITHMS(portable, )
#if defined(__x86_64__)
ALGORITHMS(with_popcnt, __attribute__((target("popcnt"))))
#endif

/* The algorithm of a name, or NULL with ValueError. */
static const algorithm *
as_algorithm(PyObject *name)
{
    const algorithm *algorithms = algorithms_portable;

#if defined(__x86_64__)
    if (route == &with_popcnt)
        algorithms = algorithms_with_popcnt;
#endif
    for (int i = 0; i < ALGORITHM_COUNT; i++) {
        if (PyUnicode_Check(name)
            && PyUnicode_CompareWithASCIIString(name, algorithms[i].name) == 0)
            return &algorithms[i];
    }
    PyErr_Format(PyExc_ValueError, "no method %R", name);
    return NULL;
}

static void
paper_free(paper *on)
{
    PyMem_Free(on->table);
    PyMem_Free(on->queue);
}

/* The checked arguments (n, method, depth), and the arrays that the method needs; -1 on error. */
static int
as_paper(PyObject *module, PyObject *size, PyObject *name, PyObject *depth,
         const algorithm **method, paper *on)
{
    PyObject *graph_error = ((module_state *)PyModule_GetState(module))->graph_error;
    int64_t levels = 0;
    size_t entries;

    *on = (paper){0};
    *method = as_algorithm(name);
    if (*method == NULL
        || as_number(size, "size", 2, (*method)->largest, graph_error, &on->n) < 0
        || (depth != NULL
            && as_number(depth, "depth", 0, (*method)->deepest, graph_error, &levels) < 0))
        return -1;
    on->depth = (int)levels;
    entries = (*method)->largest == LARGEST_TABLE ? (size_t)on->n : 1;
    on->table = PyMem_New(int32_t, entries);
    on->queue = PyMem_New(int32_t, entries);
    if (on->table == NULL || on->queue == NULL) {
        paper_free(on);
        PyErr_NoMemory();
        return -1;
    }
    if ((*method)->first_hop == table_first_hop) {
        for (int64_t d = 1; d < on->n; d++)
            on->table[d] = (int32_t)route->first_hop(on->n, d);
    }
    return 0;
}

/* The hops that a method takes to a rank d away; -1 where it goes in circles. */
static int
paper_hops(const algorithm *method, const paper *on, int64_t d)
{
    int hops = 0;

    if (method->split != NULL)
        return method->split(on, d).weight;
    while (d != 0) {
        if (++hops > HOPS_MAX)
            return -1;
        d = clockwise(on->n, (d - method->first_hop(on, d)) % on->n);
    }
    return hops;
}

static PyObject *
paper_hop_count(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    const algorithm *method;
    PyObject *found = NULL;
    paper on;
    int64_t d;

    BIND("paper_hop_count", 3, "n", "distance", "method", "depth")
    if (as_paper(module, given[0], given[2], given[3], &method, &on) < 0)
        return NULL;
    if (as_distance(module, given, &on.n, &d) == 0)
        found = PyLong_FromLong(d == 0 ? 0 : paper_hops(method, &on, d));
    paper_free(&on);
    return found;
}

static PyObject *
paper_first_hop(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    const algorithm *method;
    PyObject *found = NULL;
    paper on;
    int64_t d;

    BIND("paper_first_hop", 3, "n", "distance", "method", "depth")
    if (as_paper(module, given[0], given[2], given[3], &method, &on) < 0)
        return NULL;
    if (as_distance_to_another(module, given, &on.n, &d) == 0)
        found = PyLong_FromLongLong(method->first_hop(&on, d));
    paper_free(&on);
    return found;
}

/* How many distances take 0, 1, 2, ... hops; a message is followed to the first known distance. */
static int
count_hops(const algorithm *method, const paper *on, int8_t *hops, int64_t *counts)
{
    int64_t passed[HOPS_MAX];

    hops[0] = 0;
    memset(hops + 1, -1, (size_t)on->n - 1);
    memset(counts, 0, (HOPS_MAX + 1) * sizeof *counts);
    for (int64_t d = 1; d < on->n; d++) {
        int64_t at = d;
        int length = 0, taken;
        if (method->split != NULL)
            hops[d] = (int8_t)method->split(on, d).weight;
        while (hops[at] < 0) {
            if (length == HOPS_MAX)
                return -1;
            passed[length++] = at;
            at = clockwise(on->n, (at - method->first_hop(on, at)) % on->n);
        }
        taken = hops[at];
        if (taken + length > HOPS_MAX)
            return -1;
        while (length > 0)
            hops[passed[--length]] = (int8_t)++taken;
        counts[(int)hops[d]]++;
    }
    counts[0]++;
    return 0;
}

static PyObject *
paper_hop_counts(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *graph_error = ((module_state *)PyModule_GetState(module))->graph_error;
    const algorithm *method;
    PyObject *found = NULL;
    paper on;
    int64_t counts[HOPS_MAX + 1], n;
    int8_t *hops;
    Py_ssize_t length = HOPS_MAX + 1;

    BIND("paper_hop_counts", 2, "n", "method", "depth")
    if (as_number(given[0], "size", 2, LARGEST_TABLE, graph_error, &n) < 0
        || as_paper(module, given[0], given[1], given[2], &method, &on) < 0)
        return NULL;
    hops = PyMem_New(int8_t, (size_t)on.n);
    if (hops == NULL)
        PyErr_NoMemory();
    else if (count_hops(method, &on, hops, counts) < 0)
        PyErr_Format(graph_error, "%s goes in circles at size %lld", method->name, (long long)n);
    else {
        while (counts[length - 1] == 0)
            length--;
        found = tuple_of(counts, length);
    }
    PyMem_Free(hops);
    paper_free(&on);
    return found;
}

/* The least number of loops within which the lightest walk of 0 < d < n is found. */
static int
loops_needed(int64_t n, int64_t d)
{
    const int top = top_exponent(n);
    const int64_t below_top = ((int64_t)1 << top) - 1;
    int64_t ahead = d, behind = n - d;
    int best = INT32_MAX, needed = 0;

    for (int loop = 0; (ahead < behind ? ahead : behind) >> top < best; loop++) {
        const int weight = (int)(ahead >> top) + naf_weight((uint64_t)(ahead & below_top));
        const int other = (int)(behind >> top) + naf_weight((uint64_t)(behind & below_top));
        const int least = weight < other ? weight : other;
        if (least < best) {
            best = least;
            needed = loop;
        }
        ahead += n;
        behind += n;
    }
    return needed;
}

static PyObject *
paper_loops(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *graph_error = ((module_state *)PyModule_GetState(module))->graph_error;
    int64_t n, first, last, found = 0;
    int most = -1;

    BIND("paper_loops", 3, "n", "first", "last")
    if (as_number(given[0], "size", 2, SIZE_MAX_RANKS, graph_error, &n) < 0
        || as_number(given[1], "distance", 1, n - 1, graph_error, &first) < 0
        || as_number(given[2], "distance", first, n - 1, graph_error, &last) < 0)
        return NULL;
    for (int64_t d = first; d <= last; d++) {
        const int needed = loops_needed(n, d);
        if (needed > most) {
            most = needed;
            found = d;
        }
    }
    return Py_BuildValue("(iL)", most, (long long)found);
}

/* ---- faults ----------------------------------------------------------------------------- */

/* What failed nodes do to those that survive, for the laboratory; bmgd/topology/faults.py is the same
 * in Python. Every set of some failed nodes in a graph of at most 64, a node per bit; and, in graphs of
 * any size, all nodes failing one after the other in random order. */

enum { FAULT_NODES_MAX = 64, FAULT_ORDER_NODES_MAX = 1 << 24, FAULT_ORDERS_MAX = 1 << 20 };

/* What is counted over sets; see FaultCounts in faults.py. */
typedef struct {
    uint64_t disconnected, unreachable, measured, hops, diameters;
    int most;
} fault_counts;

/* The nodes beside some nodes: every jump is a rotation of the set, both ways. 2 <= n <= 64. */
ALWAYS_INLINE uint64_t
beside(uint64_t nodes, int n, uint64_t everyone)
{
    uint64_t spread = 0;

    for (int jump = 1; jump < n; jump <<= 1)
        spread |= nodes << jump | nodes >> (n - jump) | nodes >> jump | nodes << (n - jump);
    return spread & everyone;
}

/* The nodes that one reaches through `alive`; their hops are added up, `depth` is the most. */
ALWAYS_INLINE uint64_t
reach(uint64_t start, uint64_t alive, int n, uint64_t everyone, uint64_t *hops, int *depth)
{
    uint64_t reached = start, frontier = start;

    *depth = 0;
    while (reached != alive) {
        frontier = beside(frontier, n, everyone) & alive & ~reached;
        if (frontier == 0)
            break;
        reached |= frontier;
        *depth += 1;
        *hops += (uint64_t)*depth * (uint64_t)__builtin_popcountll(frontier);
    }
    return reached;
}

/* Count one set of survivors. */
ALWAYS_INLINE void
count_survivors(uint64_t alive, int n, uint64_t everyone, int distances, fault_counts *counts)
{
    const uint64_t survivors = (uint64_t)__builtin_popcountll(alive);
    uint64_t pairs = 0, hops = 0, unused = 0;
    int depth, diameter = 0, components = 0;

    for (uint64_t left = alive; left != 0; components++) {
        uint64_t component = reach(left & -left, alive, n, everyone, &unused, &depth);
        uint64_t nodes = (uint64_t)__builtin_popcountll(component);
        pairs += nodes * (nodes - 1);
        left &= ~component;
    }
    counts->disconnected += components > 1;
    counts->unreachable += survivors == 0 ? 0 : survivors * (survivors - 1) - pairs;
    if (!distances || pairs == 0)
        return;
    for (uint64_t left = alive; left != 0; left &= left - 1) {
        reach(left & -left, alive, n, everyone, &hops, &depth);
        diameter = depth > diameter ? depth : diameter;
    }
    counts->measured++;
    counts->hops += hops;
    counts->diameters += (uint64_t)diameter;
    counts->most = diameter > counts->most ? diameter : counts->most;
}

/* The number of sets of k among n <= 63 things; 0 < C(63, 31) < 2^63. */
static int64_t
sets_of(int n, int k)
{
    int64_t ways[FAULT_NODES_MAX] = {1};

    if (k > n)
        return 0;
    for (int row = 1; row <= n; row++) {
        for (int i = row < k ? row : k; i > 0; i--)
            ways[i] += ways[i - 1];
    }
    return ways[k];
}

/* The set of k things that is number `rank`, when sets are ordered as numbers. */
static uint64_t
set_of_rank(int n, int k, int64_t rank)
{
    uint64_t set = 0;

    for (int place = n - 1; k > 0; place--) {
        int64_t without = sets_of(place, k);
        if (rank >= without) {
            rank -= without;
            set |= (uint64_t)1 << place;
            k--;
        }
    }
    return set;
}

/* The next larger number with as many bits (Gosper); `set` is not 0. */
static inline uint64_t
next_set(uint64_t set)
{
    uint64_t low = set & -set, carried = set + low;

    return carried | ((set ^ carried) / low) >> 2;
}

static PyObject *
fault_sets(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *graph_error = ((module_state *)PyModule_GetState(module))->graph_error;
    int64_t n, failed, first, times, all;
    int distances;
    uint64_t everyone, set;
    fault_counts counts = {0};

    BIND("fault_sets", 5, "n", "failed", "first", "count", "distances")
    if (as_number(given[0], "size", 2, FAULT_NODES_MAX, graph_error, &n) < 0
        || as_number(given[1], "number failed", 0, n, graph_error, &failed) < 0)
        return NULL;
    all = failed == 0 ? 1 : sets_of((int)n - 1, (int)failed - 1);
    distances = PyObject_IsTrue(given[4]);
    if (distances < 0 || as_number(given[2], "first", 0, all, graph_error, &first) < 0
        || as_number(given[3], "count", 0, all - first, graph_error, &times) < 0)
        return NULL;
    everyone = n == 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
    set = first == all || failed < 2 ? 0 : set_of_rank((int)n - 1, (int)failed - 1, first);
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < times; i++) {
        uint64_t dead = failed == 0 ? 0 : set << 1 | 1;
        count_survivors(everyone & ~dead, (int)n, everyone, distances, &counts);
        set = set == 0 ? 0 : next_set(set);
    }
    Py_END_ALLOW_THREADS
    return Py_BuildValue("(KKKKKi)", (unsigned long long)counts.disconnected,
                         (unsigned long long)counts.unreachable,
                         (unsigned long long)counts.measured, (unsigned long long)counts.hops,
                         (unsigned long long)counts.diameters, counts.most);
}

/* Random orders of failing: the survivors are joined from the last to fail to the first. */
typedef struct {
    int32_t n;
    uint64_t state;
    int32_t *order, *parent, *nodes; /* the component's root has its number of nodes */
    uint8_t *links;                  /* to survivors, 255 at most; 0 is a dead or a lonely node */
    uint8_t *alive;
    int64_t *disconnected, *isolated; /* by the number failed, 0..n */
    double *unreachable;
} fault_orders_run;

static inline uint64_t
random_below(uint64_t *state, uint64_t bound)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return (x >> 32) * bound >> 32;
}

static inline int32_t
root_of(int32_t *parent, int32_t node)
{
    while (parent[node] != node) {
        parent[node] = parent[parent[node]];
        node = parent[node];
    }
    return node;
}

/* One more survivor; joins it to its live neighbors. */
static void
revive(fault_orders_run *run, int32_t node, int64_t *components, int64_t *lonely, double *pairs)
{
    const int32_t n = run->n;

    run->alive[node] = 1;
    run->parent[node] = node;
    run->nodes[node] = 1;
    run->links[node] = 0;
    ++*components;
    for (int32_t jump = 1; jump < n; jump <<= 1) {
        const int32_t up = node + jump, down = node - jump;
        const int32_t ends[2] = {up >= n ? up - n : up, down < 0 ? down + n : down};
        for (int i = 0; i < 2; i++) {
            int32_t a, b;
            if (!run->alive[ends[i]])
                continue;
            *lonely -= run->links[ends[i]] == 0;
            run->links[ends[i]] = 1;
            run->links[node] = 1;
            a = root_of(run->parent, node);
            b = root_of(run->parent, ends[i]);
            if (a == b)
                continue;
            if (run->nodes[a] < run->nodes[b]) {
                int32_t swapped = a;
                a = b;
                b = swapped;
            }
            *pairs += 2.0 * (double)run->nodes[a] * (double)run->nodes[b];
            run->parent[b] = a;
            run->nodes[a] += run->nodes[b];
            --*components;
        }
    }
    *lonely += run->links[node] == 0;
}

/* One order; how many have failed when the survivors first fall apart, n + 1 if they never do. */
static int64_t
fail_in_order(fault_orders_run *run)
{
    const int32_t n = run->n;
    int64_t components = 0, lonely = 0, first = n + 1;
    double pairs = 0.0;

    for (int32_t i = 0; i < n; i++) {
        run->order[i] = i;
        run->alive[i] = 0;
    }
    for (int32_t i = n - 1; i > 0; i--) {
        int32_t j = (int32_t)random_below(&run->state, (uint64_t)i + 1);
        int32_t swapped = run->order[i];
        run->order[i] = run->order[j];
        run->order[j] = swapped;
    }
    for (int32_t failed = n - 1; failed >= 0; failed--) {
        const double survivors = (double)(n - failed);
        revive(run, run->order[failed], &components, &lonely, &pairs);
        if (components == 1)
            continue;
        first = failed;
        run->disconnected[failed]++;
        run->isolated[failed] += lonely > 0;
        run->unreachable[failed] += 1.0 - pairs / (survivors * (survivors - 1.0));
    }
    return first;
}

static PyObject *
list_of_counts(const int64_t *counts, int64_t length)
{
    PyObject *list = PyList_New((Py_ssize_t)length);

    for (int64_t i = 0; list != NULL && i < length; i++) {
        PyObject *number = PyLong_FromLongLong(counts[i]);
        if (number == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, number);
    }
    return list;
}

static PyObject *
list_of_shares(const double *shares, int64_t length)
{
    PyObject *list = PyList_New((Py_ssize_t)length);

    for (int64_t i = 0; list != NULL && i < length; i++) {
        PyObject *number = PyFloat_FromDouble(shares[i]);
        if (number == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, number);
    }
    return list;
}

static void
fault_orders_free(fault_orders_run *run)
{
    PyMem_Free(run->order);
    PyMem_Free(run->parent);
    PyMem_Free(run->nodes);
    PyMem_Free(run->links);
    PyMem_Free(run->alive);
    PyMem_Free(run->disconnected);
    PyMem_Free(run->isolated);
    PyMem_Free(run->unreachable);
}

static PyObject *
fault_orders(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *graph_error = ((module_state *)PyModule_GetState(module))->graph_error;
    PyObject *result = NULL;
    int64_t n, samples, seed, *firsts;
    fault_orders_run run = {0};

    BIND("fault_orders", 3, "n", "samples", "seed")
    if (as_number(given[0], "size", 2, FAULT_ORDER_NODES_MAX, graph_error, &n) < 0
        || as_number(given[1], "number of samples", 0, FAULT_ORDERS_MAX, graph_error, &samples) < 0
        || as_number(given[2], "seed", 0, INT64_MAX, graph_error, &seed) < 0)
        return NULL;
    run.n = (int32_t)n;
    run.state = (uint64_t)seed;
    run.order = PyMem_New(int32_t, (size_t)n);
    run.parent = PyMem_New(int32_t, (size_t)n);
    run.nodes = PyMem_New(int32_t, (size_t)n);
    run.links = PyMem_New(uint8_t, (size_t)n);
    run.alive = PyMem_New(uint8_t, (size_t)n);
    run.disconnected = PyMem_Calloc((size_t)n + 1, sizeof(int64_t));
    run.isolated = PyMem_Calloc((size_t)n + 1, sizeof(int64_t));
    run.unreachable = PyMem_Calloc((size_t)n + 1, sizeof(double));
    firsts = PyMem_New(int64_t, (size_t)samples + 1);
    if (run.order == NULL || run.parent == NULL || run.nodes == NULL || run.links == NULL
        || run.alive == NULL || run.disconnected == NULL || run.isolated == NULL
        || run.unreachable == NULL || firsts == NULL)
        PyErr_NoMemory();
    else {
        Py_BEGIN_ALLOW_THREADS
        for (int64_t i = 0; i < samples; i++)
            firsts[i] = fail_in_order(&run);
        Py_END_ALLOW_THREADS
        result = Py_BuildValue("(NNNN)", list_of_counts(firsts, samples),
                               list_of_counts(run.disconnected, n + 1),
                               list_of_counts(run.isolated, n + 1),
                               list_of_shares(run.unreachable, n + 1));
    }
    PyMem_Free(firsts);
    fault_orders_free(&run);
    return result;
}

/* ---- benchmark -------------------------------------------------------------------------- */

enum { SAMPLES = 1 << 16 };

/* Every first hop, as the relay takes them; a mask and no jump. */
static int64_t
all_first_hops(const paper *on, int64_t d)
{
    return (int64_t)route->optimal_jumps(on->n, d);
}

/* The nanoseconds per call. The sum of all answers goes to `sum`, so that none can be left out. */
static double
bench_run(int64_t (*call)(const paper *on, int64_t d), const paper *on, const int64_t *distances,
          int64_t times, volatile int64_t *sum)
{
    struct timespec start, end;
    int64_t total = 0;

    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int64_t i = 0; i < times; i++)
        total += call(on, distances[i & (SAMPLES - 1)]);
    clock_gettime(CLOCK_MONOTONIC, &end);
    *sum = total;
    return ((double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec))
           / (double)times;
}

static PyObject *
bench_next_hop(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *graph_error = ((module_state *)PyModule_GetState(module))->graph_error, *name;
    PyObject *result = NULL;
    const algorithm *method;
    paper on;
    int64_t times, seed, *distances;
    uint64_t state;
    volatile int64_t sum = 0;
    int all;

    BIND("bench_next_hop", 4, "n", "count", "seed", "method", "depth")
    all = PyUnicode_Check(given[3]) && PyUnicode_CompareWithASCIIString(given[3], "all") == 0;
    name = all ? PyUnicode_FromString("exact") : Py_NewRef(given[3]);
    if (name == NULL)
        return NULL;
    if (as_number(given[1], "count", 1, INT64_MAX, graph_error, &times) < 0
        || as_number(given[2], "seed", 0, INT64_MAX, graph_error, &seed) < 0
        || as_paper(module, given[0], name, given[4], &method, &on) < 0) {
        Py_DECREF(name);
        return NULL;
    }
    Py_DECREF(name);
    distances = PyMem_New(int64_t, SAMPLES);
    if (distances == NULL)
        PyErr_NoMemory();
    else {
        state = (uint64_t)seed;
        for (int i = 0; i < SAMPLES; i++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            distances[i] = 1 + (int64_t)((state >> 33) % (uint64_t)(on.n - 1));
        }
        result = PyFloat_FromDouble(
            bench_run(all ? all_first_hops : method->first_hop, &on, distances, times, &sum));
    }
    PyMem_Free(distances);
    paper_free(&on);
    return result;
}

/* ---- module ----------------------------------------------------------------------------- */

#define METHOD(function, flags, text)                                                           \
    {#function, (PyCFunction)(void (*)(void))function, flags, text}
#define FAST (METH_FASTCALL | METH_KEYWORDS)

static PyMethodDef snapshot_methods[] = {
    {"next_hop", (PyCFunction)(void (*)(void))snapshot_next_hop, METH_METHOD | FAST,
     "The link that a message goes out on, or -1."},
    {"split", (PyCFunction)(void (*)(void))snapshot_split, METH_METHOD | FAST,
     "Split what came from a link into frames and decide where each one goes."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef snapshot_members[] = {
    {"generation", T_LONGLONG, offsetof(snapshot, generation), READONLY, "The snapshot's number."},
    {"self_id", T_LONGLONG, offsetof(snapshot, self_id), READONLY, "The own id."},
    {"id_space", T_LONGLONG, offsetof(snapshot, id_space), READONLY, "1 + the highest id known."},
    {"layout_size", T_LONGLONG, offsetof(snapshot, layout_size), READONLY,
     "The number of ids inside the layout."},
    {"rank", T_LONGLONG, offsetof(snapshot, rank), READONLY,
     "The own rank, -1 if the own id is outside the layout."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot snapshot_slots[] = {
    {Py_tp_doc, "What a relay needs to know to forward messages; immutable."},
    {Py_tp_new, snapshot_new},
    {Py_tp_dealloc, snapshot_dealloc},
    {Py_tp_methods, snapshot_methods},
    {Py_tp_members, snapshot_members},
    {0, NULL},
};

static PyType_Spec snapshot_spec = {
    .name = "bmgd._fastroute.Snapshot",
    .basicsize = sizeof(snapshot),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = snapshot_slots,
};

static PyMethodDef module_methods[] = {
    METHOD(hop_count, FAST, "The number of hops between two ranks."),
    METHOD(first_hop, FAST, "One jump that starts a shortest path."),
    METHOD(first_hops, FAST, "Every jump that starts a shortest path."),
    METHOD(rank_of, FAST, "The rank of an id in the layout."),
    METHOD(id_of, FAST, "The id that has a rank in the layout."),
    METHOD(neighbor_ids, FAST, "The ids that the layout's graph links an id to."),
    METHOD(link_changes, FAST, "What changes at one id when ids leave a full layout."),
    METHOD(paper_hop_count, FAST, "The number of hops that an algorithm of the papers takes."),
    METHOD(paper_first_hop, FAST, "The jump that an algorithm of the papers takes first."),
    METHOD(paper_hop_counts, FAST, "How many distances take how many hops by an algorithm."),
    METHOD(paper_loops, FAST, "How many loops the lightest walks of some distances need."),
    METHOD(fault_sets, FAST, "What sets of failed nodes do to the survivors, counted."),
    METHOD(fault_orders, FAST, "What becomes of graphs whose nodes fail in random orders."),
    METHOD(bench_next_hop, FAST, "The nanoseconds per next hop by a method."),
    {NULL, NULL, 0, NULL},
};

static int
add_constants(PyObject *module)
{
    static const struct {
        const char *name;
        long value;
    } numbers[] = {
        {"LENGTH_BYTES", LENGTH_BYTES},
        {"BODY_PREFIX_BYTES", BODY_PREFIX_BYTES},
        {"HEADER_BYTES", HEADER_BYTES},
        {"BODY_BYTES_MIN", BODY_BYTES_MIN},
        {"FRAME_BYTES_MAX", FRAME_BYTES_MAX},
        {"ARRAY_FIRST", ARRAY_FIRST},
        {"ARRAY_LAST", ARRAY_LAST},
        {"BIN_8", BIN_8},
        {"KIND_AT", KIND_AT},
        {"FLAGS_AT", FLAGS_AT},
        {"PRIORITY_AT", PRIORITY_AT},
        {"HOP_BUDGET_AT", HOP_BUDGET_AT},
        {"DESTINATION_AT", DESTINATION_AT},
        {"SOURCE_AT", SOURCE_AT},
        {"LINK_LOCAL_FIRST", LINK_LOCAL_FIRST},
        {"LINK_LOCAL_LAST", LINK_LOCAL_LAST},
        {"ROUTED_FIRST", ROUTED_FIRST},
        {"ROUTED_LAST", ROUTED_LAST},
        {"FLAG_CAREFUL", FLAG_CAREFUL},
        {"FLAG_RECORD", FLAG_RECORD},
    };

    for (size_t i = 0; i < Py_ARRAY_LENGTH(numbers); i++) {
        if (PyModule_AddIntConstant(module, numbers[i].name, numbers[i].value) < 0)
            return -1;
    }
    if (PyModule_AddStringConstant(module, "BAD_LENGTH", BAD_LENGTH) < 0
        || PyModule_AddStringConstant(module, "BAD_HEADER", BAD_HEADER) < 0
        || PyModule_AddStringConstant(module, "BAD_KIND", BAD_KIND) < 0)
        return -1;
    return 0;
}

static int
module_exec(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    PyObject *errors = PyImport_ImportModule("bmgd.errors");

    if (errors == NULL)
        return -1;
    state->graph_error = PyObject_GetAttrString(errors, "GraphError");
    Py_DECREF(errors);
    if (state->graph_error == NULL)
        return -1;
    state->snapshot_type =
        (PyTypeObject *)PyType_FromModuleAndSpec(module, &snapshot_spec, NULL);
    if (state->snapshot_type == NULL || PyModule_AddType(module, state->snapshot_type) < 0)
        return -1;
    choose_arithmetic();
    return add_constants(module);
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    module_state *state = PyModule_GetState(module);

    Py_VISIT(state->graph_error);
    Py_VISIT(state->snapshot_type);
    return 0;
}

static int
module_clear(PyObject *module)
{
    module_state *state = PyModule_GetState(module);

    Py_CLEAR(state->graph_error);
    Py_CLEAR(state->snapshot_type);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
    {0, NULL},
};

static PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "bmgd._fastroute",
    .m_doc = "The routing of bmgd in C; see bmgd.routing.reference for the same in Python.",
    .m_size = sizeof(module_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC
PyInit__fastroute(void)
{
    return PyModuleDef_Init(&module_definition);
}
