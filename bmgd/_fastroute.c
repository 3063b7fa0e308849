/* The routing of bmgd in C: hop counts, next hops, ranks, link changes, and the relay's splitter.
 *
 * bmgd/topology/distance.py and bmgd/routing/{ranks,reference}.py are the same in Python, with the
 * reasons; both give the same answers, and the tests hold one against the other. Sections:
 *
 *   ranks        ids to ranks and back over Python sequences
 *   functions    the module's functions
 *   snapshot     the immutable forwarding snapshot
 *   splitter     a chunk of bytes to frames and runs
 *   module
 *
 * Beside it: _arithmetic.h (hops, without Python), _arguments.h (Python objects to numbers),
 * _forwarding.h (the snapshot's fields, and where a frame goes), _engine.c (sockets of links),
 * _labroutes.c (what only the laboratory computes).
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#include "_arguments.h"
#include "_arithmetic.h"
#include "_forwarding.h"

typedef struct {
    PyObject *graph_error;
    PyTypeObject *snapshot_type;
} module_state;

static inline PyObject *
error_of(PyObject *module)
{
    return ((module_state *)PyModule_GetState(module))->graph_error;
}

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

/* ---- functions -------------------------------------------------------------------------- */

static PyObject *
hop_count(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    int64_t n, d;

    BIND("hop_count", 2, "n", "distance")
    if (as_distance(error_of(module), given, &n, &d) < 0)
        return NULL;
    return PyLong_FromLong(d == 0 ? 0 : route->lightest(n, d).weight);
}

static PyObject *
first_hop(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    int64_t n, d;

    BIND("first_hop", 2, "n", "distance")
    if (as_distance_to_another(error_of(module), given, &n, &d) < 0)
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
    if (as_distance_to_another(error_of(module), given, &n, &d) < 0)
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
    PyObject *graph_error = error_of(module);
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
    PyObject *graph_error = error_of(module);
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
    PyObject *graph_error = error_of(module);
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
    PyObject *graph_error = error_of(module);
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

/* Reads an id, or a run (first, last) of them. */
static int
as_outside(PyObject *item, int64_t id_space, PyObject *graph_error, int64_t *first, int64_t *last)
{
    static const char what[] = "outside the layout: id";

    if (!PyTuple_Check(item)) {
        if (as_number(item, what, 0, id_space - 1, graph_error, first) < 0)
            return -1;
        *last = *first;
        return 0;
    }
    if (PyTuple_GET_SIZE(item) != 2) {
        PyErr_SetString(graph_error, "a run of ids is not (first, last)");
        return -1;
    }
    if (as_number(PyTuple_GET_ITEM(item, 0), what, 0, id_space - 1, graph_error, first) < 0)
        return -1;
    return as_number(PyTuple_GET_ITEM(item, 1), what, *first, id_space - 1, graph_error, last);
}

/* Ids that follow each other become one run. */
static int
take_outside(snapshot *self, PyObject *ids, PyObject *graph_error)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(ids);
    int64_t first, last, before = -2;
    outside_run *run = self->outside = PyMem_New(outside_run, count + 1);

    if (run == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (as_outside(PyTuple_GET_ITEM(ids, i), self->id_space, graph_error, &first, &last) < 0)
            return -1;
        if (first <= before) {
            PyErr_SetString(graph_error, "the ids outside the layout are not ascending");
            return -1;
        }
        if (first != before + 1) {
            const uint32_t behind = (uint32_t)outside_before(self, self->outside_runs);
            run = &self->outside[self->outside_runs++];
            *run = (outside_run){.first = (uint32_t)first, .behind = behind};
        }
        run->behind += (uint32_t)(last - first + 1);
        before = last;
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
    self->layout_size = self->id_space - outside_before(self, self->outside_runs);
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

enum { STACK_FRAMES = 1024, STACK_RUNS = 256, RELEASE_GIL_BYTES = 32768 };

/* A whole frame, its length prefix included, and the run that it joins; -1 is the core. */
typedef struct {
    size_t at;
    uint32_t length;
    int32_t run;
} frame;

/* What goes out on one link in one class; see `run_of_class`. */
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

    state->graph_error = import_error("GraphError");
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

MODULE_END(_fastroute,
           "The routing of bmgd in C; see bmgd.routing.reference for the same in Python.",
           module_methods)
