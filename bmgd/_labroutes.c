/* What only the laboratory computes, in C: the papers' own routing, and graphs with failed nodes.
 *
 * bmgd/routing/papers/ and bmgd/topology/faults.py are the same in Python, with the reasons. No daemon
 * loads this. Sections:
 *
 *   papers       the papers' own algorithms
 *   faults       what failed nodes do to the survivors
 *   benchmark    next hops by several methods, timed without Python
 *   module
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "_arguments.h"
#include "_arithmetic.h"

typedef struct {
    PyObject *graph_error;
} module_state;

static inline PyObject *
error_of(PyObject *module)
{
    return ((module_state *)PyModule_GetState(module))->graph_error;
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
    PyObject *graph_error = error_of(module);
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
    if (as_distance(error_of(module), given, &on.n, &d) == 0)
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
    if (as_distance_to_another(error_of(module), given, &on.n, &d) == 0)
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
    PyObject *graph_error = error_of(module);
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
    PyObject *graph_error = error_of(module);
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
    PyObject *graph_error = error_of(module);
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
    PyObject *graph_error = error_of(module);
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
    PyObject *graph_error = error_of(module), *name;
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

#define METHOD(function, text)                                                                  \
    {#function, (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS, text}

static PyMethodDef module_methods[] = {
    METHOD(paper_hop_count, "The number of hops that an algorithm of the papers takes."),
    METHOD(paper_first_hop, "The jump that an algorithm of the papers takes first."),
    METHOD(paper_hop_counts, "How many distances take how many hops by an algorithm."),
    METHOD(paper_loops, "How many loops the lightest walks of some distances need."),
    METHOD(fault_sets, "What sets of failed nodes do to the survivors, counted."),
    METHOD(fault_orders, "What becomes of graphs whose nodes fail in random orders."),
    METHOD(bench_next_hop, "The nanoseconds per next hop by a method."),
    {NULL, NULL, 0, NULL},
};

static int
module_exec(PyObject *module)
{
    module_state *state = PyModule_GetState(module);

    state->graph_error = import_error("GraphError");
    if (state->graph_error == NULL)
        return -1;
    choose_arithmetic();
    return 0;
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    Py_VISIT(error_of(module));
    return 0;
}

static int
module_clear(PyObject *module)
{
    Py_CLEAR(((module_state *)PyModule_GetState(module))->graph_error);
    return 0;
}

MODULE_END(_labroutes,
           "What only the laboratory computes, in C; see bmgd.routing.papers and bmgd.topology.faults.",
           module_methods)
