/* The links of one daemon in C: sockets, frames, relaying, outboxes; `LinkEngine` of bmgd.linklayer.
 *
 * bmgd/linklayer/ has the theory, and the same in Python. One call of `poll` reads what is ready, splits
 * it, relays by the published snapshot and writes, all without the GIL, and returns what is the core's.
 * Relayed frames become no Python objects. Parts, each included once:
 *
 *   _engine_outbox.h    what waits to be written to one link
 *   _engine_links.h     the table of links, their states, what happened
 *   _engine_sockets.h   epoll and writing
 *   _engine_frames.h    reading, splitting, relaying
 *   _engine_heartbeats.h  heartbeats from which nothing follows
 *
 * This file has the Python side: arguments, lists, memory. While the GIL is released the engine is busy:
 * no other call is let in, its snapshot is held, and links that end are freed only afterwards.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "_arguments.h"
#include "_arithmetic.h"
#include "_engine_frames.h"
#include "_engine_links.h"
#include "_engine_outbox.h"
#include "_engine_sockets.h"
#include "_forwarding.h"

typedef struct {
    PyTypeObject *engine_type;
    PyTypeObject *snapshot_type;
} module_state;

/* ---- entering and leaving ------------------------------------------------------------------ */

static int
enter(engine *self)
{
    if (self->is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "the engine is in use by another thread");
        return -1;
    }
    return 0;
}

static void
free_link(bmgd_link *link)
{
    outbox_free(&link->out);
    PyMem_RawFree(link->rest);
    PyMem_RawFree(link);
}

/* Free the links that ended; -1 with MemoryError where something was lost for lack of memory. */
static int
leave(engine *self)
{
    while (self->ended_count > 0)
        free_link(self->ended[--self->ended_count]);
    if (self->no_memory) {
        self->no_memory = 0;
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static PyObject *
leave_with(engine *self, PyObject *result)
{
    if (leave(self) < 0)
        Py_CLEAR(result);
    return result;
}

/* ---- arguments ----------------------------------------------------------------------------- */

static int
as_link(PyObject *object, int64_t *number)
{
    return as_number(object, "link", INT64_MIN, INT64_MAX, PyExc_ValueError, number);
}

/* How many whole frames there are, -1 with ValueError where bytes are anything else. */
static int64_t
count_frames(const Py_buffer *view)
{
    const uint8_t *bytes = view->buf;
    const size_t end = (size_t)view->len;
    int64_t count = 0;

    for (size_t at = 0; at < end; count++) {
        size_t length = 0;
        if (end - at >= LENGTH_BYTES)
            length = big_endian(bytes + at);
        if (length < BODY_BYTES_MIN || length > FRAME_BYTES_MAX
            || length > end - at - LENGTH_BYTES) {
            PyErr_SetString(PyExc_ValueError, "not whole frames");
            return -1;
        }
        at += LENGTH_BYTES + length;
    }
    return count;
}

/* ---- what happened ------------------------------------------------------------------------- */

static PyObject *
detail_of(const engine *self, const happening *told)
{
    switch (told->what) {
    case FRAME:
    case GOODBYE:
    case RETURNED:
        return PyBytes_FromStringAndSize((const char *)self->arena + told->at,
                                         (Py_ssize_t)told->length);
    case MALFORMED:
        return PyUnicode_FromString(told->text);
    case WRITTEN:
    case CLOSED:
        Py_RETURN_NONE;
    default:
        return PyLong_FromLongLong(told->number);
    }
}

/* What was told since `first`, as a list, and forget it. With `details_only` no tuples. */
static PyObject *
take_happened(engine *self, size_t first, int details_only)
{
    const size_t count = self->happened_count - first;
    PyObject *list = PyList_New((Py_ssize_t)count), *link = NULL;
    int64_t number = 0;

    for (size_t i = 0; list != NULL && i < count; i++) {
        const happening *told = &self->happened[first + i];
        PyObject *detail = detail_of(self, told), *item = detail;
        if (!details_only && detail != NULL) {
            /* Most of a list is of few links. */
            if (link == NULL || told->link != number)
                Py_XSETREF(link, PyLong_FromLongLong(told->link));
            number = told->link;
            item = link == NULL ? NULL : Py_BuildValue("(OiN)", link, told->what, detail);
        }
        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    Py_XDECREF(link);
    if (first == 0) {
        self->arena_bytes = 0;
        if (self->arena_capacity > ROUND_BYTES_MAX) {
            PyMem_RawFree(self->arena);
            self->arena = NULL;
            self->arena_capacity = 0;
        }
    } else if (count > 0)
        self->arena_bytes = self->happened[first].at;
    self->happened_count = first;
    return list;
}

/* ---- links --------------------------------------------------------------------------------- */

#define AS_ENGINE(object) ((engine *)(object))

static PyObject *
engine_fileno(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromLong(AS_ENGINE(object)->epoll);
}

static PyObject *
engine_publish(PyObject *object, PyTypeObject *type, PyObject *const *args, Py_ssize_t count,
               PyObject *keywords)
{
    engine *self = AS_ENGINE(object);
    module_state *state = PyType_GetModuleState(type);
    snapshot *routes;
    bmgd_link **by_slot;
    chunk_run *runs;
    int32_t *order;
    size_t slots, run_count;

    BIND("publish", 1, "snapshot")
    if (enter(self) < 0)
        return NULL;
    if (!Py_IS_TYPE(given[0], state->snapshot_type)) {
        PyErr_SetString(PyExc_TypeError, "not a bmgd._fastroute.Snapshot");
        return NULL;
    }
    routes = (snapshot *)given[0];
    slots = (size_t)routes->link_count;
    run_count = RUNS_PER_LINK * slots;
    by_slot = PyMem_RawCalloc(slots + 1, sizeof *by_slot);
    runs = PyMem_RawMalloc((run_count + 1) * sizeof *runs);
    order = PyMem_RawMalloc((run_count + 1) * sizeof *order);
    if (by_slot == NULL || runs == NULL || order == NULL) {
        PyMem_RawFree(by_slot);
        PyMem_RawFree(runs);
        PyMem_RawFree(order);
        return PyErr_NoMemory();
    }
    for (size_t i = 0; i < run_count; i++)
        runs[i] = (chunk_run){.first = -1, .last = -1};
    PyMem_RawFree(self->by_slot);
    PyMem_RawFree(self->runs);
    PyMem_RawFree(self->order);
    self->by_slot = by_slot;
    self->runs = runs;
    self->order = order;
    self->by_slot_stale = 1;
    self->flow_epoch++;
    Py_INCREF(routes);
    Py_XSETREF(self->routes, routes);
    Py_RETURN_NONE;
}

/* Enter a new link; NULL with an exception. */
static bmgd_link *
new_link(engine *self, int fd, int64_t number, int64_t came_from)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)number};
    bmgd_link *link;

    if (find_link(self, number) != NULL) {
        PyErr_Format(PyExc_ValueError, "link id %lld is in use", (long long)number);
        return NULL;
    }
    link = PyMem_RawCalloc(1, sizeof *link);
    if (link == NULL || table_reserve(self) < 0) {
        self->no_memory = 0;
        PyMem_RawFree(link);
        PyErr_NoMemory();
        return NULL;
    }
    *link = (bmgd_link){.number = number, .came_from = came_from, .fd = fd, .watched = EPOLLIN};
    if (fd >= 0 && epoll_ctl(self->epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
        PyMem_RawFree(link);
        PyErr_SetFromErrno(PyExc_OSError);
        return NULL;
    }
    if (fd >= 0)
        learn_unsent(link);
    self->all[self->link_count++] = link;
    table_enter(self, link);
    self->by_slot_stale = 1;
    return link;
}

static PyObject *
engine_adopt(PyObject *object, PyTypeObject *Py_UNUSED(type), PyObject *const *args,
             Py_ssize_t count, PyObject *keywords)
{
    engine *self = AS_ENGINE(object);
    int64_t fd, number, came_from = -1;

    BIND("adopt", 2, "fd", "link", "came_from")
    if (enter(self) < 0
        || as_number(given[0], "descriptor", -1, INT_MAX, PyExc_ValueError, &fd) < 0
        || as_number(given[1], "link id", 1, INT64_MAX, PyExc_ValueError, &number) < 0
        || (given[2] != NULL
            && as_number(given[2], "peer", -1, U32_LIMIT - 1, PyExc_ValueError, &came_from) < 0)
        || new_link(self, (int)fd, number, came_from) == NULL)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
engine_promote(PyObject *object, PyTypeObject *Py_UNUSED(type), PyObject *const *args,
               Py_ssize_t count, PyObject *keywords)
{
    engine *self = AS_ENGINE(object);
    int64_t number, peer;
    bmgd_link *link;

    BIND("promote", 2, "link", "peer")
    if (enter(self) < 0 || as_link(given[0], &number) < 0
        || as_number(given[1], "peer", -1, U32_LIMIT - 1, PyExc_ValueError, &peer) < 0)
        return NULL;
    link = find_link(self, number);
    if (link != NULL)
        link->came_from = peer;
    Py_RETURN_NONE;
}

static PyObject *
engine_shut(PyObject *object, PyTypeObject *Py_UNUSED(type), PyObject *const *args,
            Py_ssize_t count, PyObject *keywords)
{
    engine *self = AS_ENGINE(object);
    int64_t number;
    bmgd_link *link;
    Py_buffer view;
    int failed = 0;

    BIND("shut", 2, "link", "goodbye")
    if (enter(self) < 0 || as_link(given[0], &number) < 0
        || PyObject_GetBuffer(given[1], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    link = find_link(self, number);
    if (count_frames(&view) != 1) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a goodbye is one frame");
        failed = 1;
    } else if (link != NULL && link->state == UP) {
        link->out.goodbye = PyMem_RawMalloc((size_t)view.len);
        if (link->out.goodbye == NULL) {
            PyErr_NoMemory();
            failed = 1;
        } else {
            memcpy(link->out.goodbye, view.buf, (size_t)view.len);
            link->out.goodbye_bytes = (size_t)view.len;
            link->state = CLOSING;
            link->absorbs = 0;
            mark_waiting(self, link);
        }
    }
    PyBuffer_Release(&view);
    return failed ? NULL : leave_with(self, Py_NewRef(Py_None));
}

static PyObject *
engine_close(PyObject *object, PyTypeObject *Py_UNUSED(type), PyObject *const *args,
             Py_ssize_t count, PyObject *keywords)
{
    engine *self = AS_ENGINE(object);
    const size_t first = self->happened_count;
    int64_t number;
    bmgd_link *link;

    BIND("close", 1, "link")
    if (enter(self) < 0 || as_link(given[0], &number) < 0)
        return NULL;
    link = find_link(self, number);
    if (link == NULL)
        return PyList_New(0);
    forget_link(self, link);
    return leave_with(self, take_happened(self, first, 1));
}

/* ---- bytes --------------------------------------------------------------------------------- */

/* The rest of a link and new bytes in one piece of memory: the receive buffer, or one to be freed. */
static uint8_t *
joined(engine *self, bmgd_link *link, const Py_buffer *view, size_t *end, uint8_t **to_free)
{
    uint8_t *bytes = self->buffer;

    if (own_buffer(self, link) < 0)
        return NULL;
    *end = self->rest_bytes + (size_t)view->len;
    if (*end > BUFFER_BYTES) {
        bytes = *to_free = PyMem_RawMalloc(*end);
        if (bytes == NULL)
            return NULL;
    }
    if (grow(self, &self->pieces, &self->piece_capacity, *end / FRAME_BYTES_MIN + 1,
             sizeof *self->pieces) < 0)
        return NULL;
    memmove(bytes, self->buffer + self->rest_at, self->rest_bytes);
    if (view->len > 0)
        memcpy(bytes + self->rest_bytes, view->buf, (size_t)view->len);
    return bytes;
}

static void
feed_link(engine *self, bmgd_link *link, const Py_buffer *view)
{
    size_t end = 0, consumed;
    uint8_t *to_free = NULL, *bytes = joined(self, link, view, &end, &to_free);

    if (bytes == NULL)
        self->no_memory = 1;
    else {
        self->received_bytes += view->len;
        consumed = take_frames(self, link, bytes, end);
        self->rest_at = 0;
        self->rest_bytes = link->gone || link->state == LEFT ? 0 : end - consumed;
        memmove(self->buffer, bytes + consumed, self->rest_bytes);
    }
    PyMem_RawFree(to_free);
}

static PyObject *
engine_feed(PyObject *object, PyTypeObject *Py_UNUSED(type), PyObject *const *args,
            Py_ssize_t count, PyObject *keywords)
{
    engine *self = AS_ENGINE(object);
    int64_t number;
    bmgd_link *link;
    Py_buffer view;

    BIND("feed", 2, "link", "data")
    if (enter(self) < 0 || as_link(given[0], &number) < 0
        || PyObject_GetBuffer(given[1], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (view.len > INT32_MAX) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "too many bytes at once");
        return NULL;
    }
    link = find_link(self, number);
    if (link != NULL && link->state != LEFT)
        feed_link(self, link, &view);
    PyBuffer_Release(&view);
    return leave_with(self, Py_NewRef(Py_None));
}

static PyObject *
engine_finish(PyObject *object, PyTypeObject *Py_UNUSED(type), PyObject *const *args,
              Py_ssize_t count, PyObject *keywords)
{
    engine *self = AS_ENGINE(object);
    int64_t number, code;
    bmgd_link *link;

    BIND("finish", 2, "link", "errno")
    if (enter(self) < 0 || as_link(given[0], &number) < 0
        || as_number(given[1], "errno", 0, INT_MAX, PyExc_ValueError, &code) < 0)
        return NULL;
    link = find_link(self, number);
    if (link != NULL)
        finish_link(self, link, (int)code);
    return leave_with(self, Py_NewRef(Py_None));
}

/* Move the next bytes of an outbox to `to`; they are as good as written. */
static void
take_bytes(engine *self, bmgd_link *link, uint8_t *to, size_t length)
{
    struct iovec parts[OUTBOX_PARTS];

    for (size_t at = 0; at < length;) {
        const int found = outbox_gather(&link->out, NULL, 0, parts);
        const size_t before = at;
        for (int i = 0; i < found && at < length; i++) {
            const size_t some = parts[i].iov_len < length - at ? parts[i].iov_len : length - at;
            memcpy(to + at, parts[i].iov_base, some);
            at += some;
        }
        if (outbox_advance(&link->out, at - before, 0) < 0)
            self->no_memory = 1;
    }
    self->sent_bytes += (int64_t)length;
    if (after_writing(self, link))
        tell(self, link->number, WRITTEN, 0);
}

static PyObject *
engine_take(PyObject *object, PyTypeObject *Py_UNUSED(type), PyObject *const *args,
            Py_ssize_t count, PyObject *keywords)
{
    engine *self = AS_ENGINE(object);
    int64_t number, limit;
    bmgd_link *link;
    size_t length;
    PyObject *bytes;

    BIND("take", 2, "link", "limit")
    if (enter(self) < 0 || as_link(given[0], &number) < 0
        || as_number(given[1], "limit", 0, INT64_MAX, PyExc_ValueError, &limit) < 0)
        return NULL;
    link = find_link(self, number);
    if (link != NULL && link->fd >= 0) {
        PyErr_SetString(PyExc_ValueError, "the link has a descriptor: the engine writes it itself");
        return NULL;
    }
    length = link == NULL ? 0 : outbox_backlog(&link->out);
    length = (uint64_t)limit < length ? (size_t)limit : length;
    bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
    if (bytes != NULL && length > 0)
        take_bytes(self, link, (uint8_t *)PyBytes_AS_STRING(bytes), length);
    return leave_with(self, bytes);
}

/* Put frames (or raw bytes) into an outbox; PUT, DROPPED, OVER_BOUND or NO_LINK, -1: no memory. */
static int
put_frames(engine *self, bmgd_link *link, const Py_buffer *view, int64_t frames, int kind)
{
    static const size_t bounds[] = {[RAW] = CONTROL_BYTES_MAX,
                                    [CONTROL] = CONTROL_BYTES_MAX,
                                    [URGENT] = URGENT_BYTES_MAX,
                                    [BULK] = BULK_BYTES_MAX,
                                    [HIGH] = HIGH_BYTES_MAX};
    outbox *out;
    ring *queue;
    int has_room;

    if (link == NULL || link->state != UP)
        return NO_LINK;
    out = &link->out;
    queue = kind == RAW    ? &out->raw
            : kind == HIGH ? &out->high
            : kind == BULK ? &out->bulk
                           : &out->control;
    has_room = outbox_put(out, queue, view->buf, (size_t)view->len, bounds[kind]);
    if (has_room < 0)
        return -1;
    if (has_room)
        mark_waiting(self, link);
    else if (kind == BULK || kind == HIGH)
        self->dropped_bulk_frames += frames;
    else if (kind == URGENT)
        self->dropped_urgent_frames += frames;
    else
        return OVER_BOUND;
    look_at_backlog(self, link, !has_room);
    return has_room ? PUT : DROPPED;
}

static PyObject *
engine_put(PyObject *object, PyTypeObject *Py_UNUSED(type), PyObject *const *args,
           Py_ssize_t count, PyObject *keywords)
{
    engine *self = AS_ENGINE(object);
    int64_t number, kind, frames;
    Py_buffer view;
    int result;

    BIND("put", 3, "link", "data", "kind")
    if (enter(self) < 0 || as_link(given[0], &number) < 0
        || as_number(given[2], "kind", RAW, HIGH, PyExc_ValueError, &kind) < 0
        || PyObject_GetBuffer(given[1], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    frames = kind == RAW ? 0 : count_frames(&view);
    result = frames < 0 ? -1 : put_frames(self, find_link(self, number), &view, frames, (int)kind);
    PyBuffer_Release(&view);
    if (result < 0)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    return leave_with(self, PyLong_FromLong(result));
}

static PyObject *
engine_know(PyObject *object, PyTypeObject *Py_UNUSED(type), PyObject *const *args,
            Py_ssize_t count, PyObject *keywords)
{
    engine *self = AS_ENGINE(object);

    BIND("know", 1, "frame")
    if (enter(self) < 0)
        return NULL;
    if (!PyBytes_CheckExact(given[0])) {
        PyErr_SetString(PyExc_TypeError, "a frame is bytes");
        return NULL;
    }
    if (is_known(self, (const uint8_t *)PyBytes_AS_STRING(given[0]),
                 (size_t)PyBytes_GET_SIZE(given[0])))
        Py_RETURN_NONE;
    if (self->known_count < KNOWN_NOTICES_MAX)
        self->known[self->known_count++] = Py_NewRef(given[0]);
    else {
        Py_SETREF(self->known[self->known_at], Py_NewRef(given[0]));
        self->known_at = (self->known_at + 1) % KNOWN_NOTICES_MAX;
    }
    Py_RETURN_NONE;
}

/* ---- heartbeats ------------------------------------------------------------------------------ */

static PyObject *
engine_absorb_heartbeats(PyObject *object, PyTypeObject *Py_UNUSED(type), PyObject *const *args,
                         Py_ssize_t count, PyObject *keywords)
{
    engine *self = AS_ENGINE(object);
    PyObject *links;
    int64_t number;

    BIND("absorb_heartbeats", 2, "digest", "links")
    if (enter(self) < 0)
        return NULL;
    if (!PyBytes_CheckExact(given[0]) || PyBytes_GET_SIZE(given[0]) != DIGEST_BYTES) {
        PyErr_Format(PyExc_ValueError, "a digest has %d bytes", DIGEST_BYTES);
        return NULL;
    }
    links = PySequence_Tuple(given[1]);
    if (links == NULL)
        return NULL;
    memcpy(self->digest, PyBytes_AS_STRING(given[0]), DIGEST_BYTES);
    for (size_t i = 0; i < self->link_count; i++)
        self->all[i]->absorbs = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(links); i++) {
        bmgd_link *link;
        if (as_link(PyTuple_GET_ITEM(links, i), &number) < 0) {
            Py_DECREF(links);
            return NULL;
        }
        link = find_link(self, number);
        if (link != NULL)
            link->absorbs = link->state == UP;
    }
    Py_DECREF(links);
    Py_RETURN_NONE;
}

static PyObject *
engine_absorbed_heartbeats(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    engine *self = AS_ENGINE(object);
    PyObject *told;
    size_t kept = 0;

    if (enter(self) < 0)
        return NULL;
    if (self->beaten_count == 0)
        return PyTuple_New(0);
    told = PyList_New(0);
    for (size_t i = 0; i < self->beaten_count; i++) {
        bmgd_link *link = find_link(self, self->beaten[i]);
        PyObject *row;
        if (link->beat.at_ns == NOT_POLLED) {
            self->beaten[kept++] = link->number;
            continue;
        }
        row = Py_BuildValue("LLKKL", (long long)link->number, (long long)link->beat.at_ns,
                            (unsigned long long)link->beat.sequence,
                            (unsigned long long)link->beat.echo, (long long)link->beat.count);
        if (told != NULL && (row == NULL || PyList_Append(told, row) < 0))
            Py_CLEAR(told);
        Py_XDECREF(row);
        link->beat = (beat){0};
    }
    self->beaten_count = kept;
    if (told == NULL)
        return NULL;
    Py_SETREF(told, PyList_AsTuple(told));
    return told;
}

/* ---- rounds -------------------------------------------------------------------------------- */

static PyObject *
engine_poll(PyObject *object, PyTypeObject *Py_UNUSED(type), PyObject *const *args,
            Py_ssize_t count, PyObject *keywords)
{
    engine *self = AS_ENGINE(object);
    int64_t now_ns = 0;

    BIND("poll", 0, "now_ns")
    if (enter(self) < 0
        || (given[0] != NULL
            && as_number(given[0], "now_ns", 0, INT64_MAX, PyExc_ValueError, &now_ns) < 0))
        return NULL;
    self->is_busy = 1;
    Py_BEGIN_ALLOW_THREADS
    serve_sockets(self);
    mark_beats(self, now_ns);
    Py_END_ALLOW_THREADS
    self->is_busy = 0;
    if (leave(self) < 0)
        return NULL;
    return take_happened(self, 0, 0);
}

static PyObject *
engine_flush(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    engine *self = AS_ENGINE(object);

    if (enter(self) < 0)
        return NULL;
    if (self->unwritten_count > 0) {
        self->is_busy = 1;
        Py_BEGIN_ALLOW_THREADS
        write_waiting(self);
        Py_END_ALLOW_THREADS
        self->is_busy = 0;
    }
    return leave_with(self, PyBool_FromLong(self->happened_count > 0 || self->broken_count > 0));
}

static PyObject *
tuple_of_links(const int64_t *numbers, size_t count)
{
    return tuple_of(numbers, (Py_ssize_t)count);
}

static PyObject *
engine_heard(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    engine *self = AS_ENGINE(object);
    PyObject *heard;

    if (enter(self) < 0)
        return NULL;
    heard = tuple_of_links(self->heard, self->heard_count);
    if (heard == NULL)
        return NULL;
    self->heard_count = 0;
    /* This is asked now and then, and not while frames pass: the time to give memory back. */
    for (size_t i = 0; i < self->link_count; i++) {
        bmgd_link *link = self->all[i];
        link->is_heard = 0;
        outbox_trim(&link->out);
        if (link->rest_bytes == 0) {
            PyMem_RawFree(link->rest);
            link->rest = NULL;
            link->rest_capacity = 0;
        }
    }
    return heard;
}

static PyObject *
engine_waiting(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    engine *self = AS_ENGINE(object);
    PyObject *waiting;

    if (enter(self) < 0)
        return NULL;
    waiting = tuple_of_links(self->waiting, self->waiting_count);
    if (waiting == NULL)
        return NULL;
    for (size_t i = 0; i < self->waiting_count; i++)
        find_link(self, self->waiting[i])->is_waiting = 0;
    self->waiting_count = 0;
    return waiting;
}

static PyObject *
engine_backlog(PyObject *object, PyTypeObject *Py_UNUSED(type), PyObject *const *args,
               Py_ssize_t count, PyObject *keywords)
{
    engine *self = AS_ENGINE(object);
    int64_t number;
    bmgd_link *link;

    BIND("backlog", 1, "link")
    if (enter(self) < 0 || as_link(given[0], &number) < 0)
        return NULL;
    link = find_link(self, number);
    return PyLong_FromSize_t(link == NULL ? 0 : outbox_backlog(&link->out));
}

static PyObject *
engine_totals(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    engine *self = AS_ENGINE(object);
    size_t backlog = 0;

    if (enter(self) < 0)
        return NULL;
    for (size_t i = 0; i < self->link_count; i++)
        backlog += outbox_backlog(&self->all[i]->out);
    return Py_BuildValue(
        "{sLsLsLsLsLsLsLsLsLsnsn}", "received_bytes", (long long)self->received_bytes, "sent_bytes",
        (long long)self->sent_bytes, "relayed_runs", (long long)self->relayed_runs,
        "relayed_frames", (long long)self->relayed_frames, "relayed_bytes",
        (long long)self->relayed_bytes, "absorbed_frames", (long long)self->absorbed_frames,
        "dropped_urgent_frames", (long long)self->dropped_urgent_frames, "dropped_bulk_frames",
        (long long)self->dropped_bulk_frames, "returned_frames", (long long)self->returned_frames,
        "backlog_bytes", (Py_ssize_t)backlog, "links", (Py_ssize_t)self->link_count);
}

/* ---- the type ------------------------------------------------------------------------------ */

static PyObject *
engine_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {NULL};
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0};
    engine *self;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, ":Engine", names))
        return NULL;
    self = (engine *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->timer = -1;
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (self->epoll < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(self);
        return NULL;
    }
    self->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (self->timer < 0 || epoll_ctl(self->epoll, EPOLL_CTL_ADD, self->timer, &event) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(self);
        return NULL;
    }
    self->buffer = PyMem_RawMalloc(BUFFER_BYTES);
    if (self->buffer == NULL
        || grow(self, &self->pieces, &self->piece_capacity, BUFFER_BYTES / FRAME_BYTES_MIN + 1,
                sizeof *self->pieces) < 0) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static int
engine_traverse(PyObject *object, visitproc visit, void *arg)
{
    engine *self = AS_ENGINE(object);

    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->routes);
    for (size_t i = 0; i < self->known_count; i++)
        Py_VISIT(self->known[i]);
    return 0;
}

static int
engine_clear(PyObject *object)
{
    engine *self = AS_ENGINE(object);
    const size_t known = self->known_count;

    Py_CLEAR(self->routes);
    self->known_count = self->known_at = 0;
    for (size_t i = 0; i < known; i++)
        Py_CLEAR(self->known[i]);
    return 0;
}

static void
engine_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    engine *self = AS_ENGINE(object);

    PyObject_GC_UnTrack(object);
    engine_clear(object);
    for (size_t i = 0; i < self->link_count; i++) {
        if (self->all[i]->fd >= 0)
            close(self->all[i]->fd);
        free_link(self->all[i]);
    }
    while (self->ended_count > 0)
        free_link(self->ended[--self->ended_count]);
    if (self->timer >= 0)
        close(self->timer);
    if (self->epoll >= 0)
        close(self->epoll);
    PyMem_RawFree(self->deferred);
    PyMem_RawFree(self->table);
    PyMem_RawFree(self->all);
    PyMem_RawFree(self->ended);
    PyMem_RawFree(self->by_slot);
    PyMem_RawFree(self->runs);
    PyMem_RawFree(self->order);
    PyMem_RawFree(self->heard);
    PyMem_RawFree(self->beaten);
    PyMem_RawFree(self->waiting);
    PyMem_RawFree(self->unwritten);
    PyMem_RawFree(self->happened);
    PyMem_RawFree(self->arena);
    PyMem_RawFree(self->buffer);
    PyMem_RawFree(self->pieces);
    type->tp_free(object);
    Py_DECREF(type);
}

#define WITH_ARGUMENTS(name, text)                                                              \
    {#name, (PyCFunction)(void (*)(void))engine_##name, METH_METHOD | METH_FASTCALL             \
     | METH_KEYWORDS, text}

static PyMethodDef engine_methods[] = {
    {"fileno", engine_fileno, METH_NOARGS, "The one descriptor that the loop watches."},
    WITH_ARGUMENTS(publish, "Relay by this snapshot from now on."),
    WITH_ARGUMENTS(adopt, "Take a link over: frames from now on."),
    WITH_ARGUMENTS(promote, "The id at the other end of a link is known now."),
    WITH_ARGUMENTS(feed, "Bytes that no socket of the engine gave."),
    WITH_ARGUMENTS(finish, "The stream of a fed link is over."),
    WITH_ARGUMENTS(take, "Remove and return the next bytes of a link without descriptor."),
    {"waiting", engine_waiting, METH_NOARGS, "The links without descriptor to be emptied."},
    WITH_ARGUMENTS(put, "Add whole frames of one kind to a link's outbox."),
    WITH_ARGUMENTS(know, "This body of a notice was decoded."),
    WITH_ARGUMENTS(absorb_heartbeats, "Heartbeats that are no matter of the core's from now on."),
    {"absorbed_heartbeats", engine_absorbed_heartbeats, METH_NOARGS, "What they said."},
    WITH_ARGUMENTS(poll, "Read what is ready; what happened since the last poll."),
    {"flush", engine_flush, METH_NOARGS, "Write what waits; whether poll has something to tell."},
    {"heard", engine_heard, METH_NOARGS, "The links heard of without the core's knowledge."},
    WITH_ARGUMENTS(shut, "Say goodbye behind all that was put."),
    WITH_ARGUMENTS(close, "End a link now; its unsent routed frames."),
    WITH_ARGUMENTS(backlog, "How many bytes wait to be written on a link."),
    {"totals", engine_totals, METH_NOARGS, "Counters since the start, and what waits now."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot engine_slots[] = {
    {Py_tp_doc, "The links of one daemon; see bmgd.linklayer.contract.LinkEngine."},
    {Py_tp_new, engine_new},
    {Py_tp_dealloc, engine_dealloc},
    {Py_tp_traverse, engine_traverse},
    {Py_tp_clear, engine_clear},
    {Py_tp_methods, engine_methods},
    {0, NULL},
};

static PyType_Spec engine_spec = {
    .name = "bmgd._engine.Engine",
    .basicsize = sizeof(engine),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = engine_slots,
};

/* ---- the module ---------------------------------------------------------------------------- */

/* The numbers that Python has too, for the tests to compare. */
static int
add_numbers(PyObject *module)
{
    static const struct {
        const char *name;
        long value;
    } numbers[] = {
#define NUMBER(name) {#name, name}
        NUMBER(RAW),        NUMBER(CONTROL),    NUMBER(URGENT),     NUMBER(BULK),       NUMBER(HIGH),
        NUMBER(PUT),        NUMBER(DROPPED),    NUMBER(OVER_BOUND), NUMBER(NO_LINK),
        NUMBER(FRAME),      NUMBER(END),        NUMBER(MALFORMED),  NUMBER(GOODBYE),
        NUMBER(BACKLOGGED), NUMBER(WRITABLE),   NUMBER(RETURNED),   NUMBER(WRITTEN),
        NUMBER(CLOSED),     NUMBER(GOODBYE_KIND), NUMBER(HEARTBEAT_KIND), NUMBER(BULK_BYTES_MAX), NUMBER(CONTROL_BYTES_MAX),
        NUMBER(URGENT_BYTES_MAX), NUMBER(HIGH_BYTES_MAX), NUMBER(BULK_SHARE), NUMBER(BULK_TURN_BYTES), NUMBER(BACKLOG_HIGH_BYTES), NUMBER(BACKLOG_LOW_BYTES),
        NUMBER(KNOWN_NOTICES_MAX),
#undef NUMBER
    };

    for (size_t i = 0; i < Py_ARRAY_LENGTH(numbers); i++) {
        if (PyModule_AddIntConstant(module, numbers[i].name, numbers[i].value) < 0)
            return -1;
    }
    return 0;
}

/* The type of snapshots; both extensions must agree on what lies in one. */
static PyTypeObject *
import_snapshot_type(void)
{
    PyObject *routing = PyImport_ImportModule("bmgd._fastroute"), *type;

    if (routing == NULL)
        return NULL;
    type = PyObject_GetAttrString(routing, "Snapshot");
    Py_DECREF(routing);
    if (type == NULL)
        return NULL;
    if (!PyType_Check(type) || ((PyTypeObject *)type)->tp_basicsize != sizeof(snapshot)) {
        PyErr_SetString(PyExc_ImportError, "bmgd._fastroute was built from other sources");
        Py_DECREF(type);
        return NULL;
    }
    return (PyTypeObject *)type;
}

static int
module_exec(PyObject *module)
{
    module_state *state = PyModule_GetState(module);

    state->snapshot_type = import_snapshot_type();
    if (state->snapshot_type == NULL)
        return -1;
    state->engine_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &engine_spec, NULL);
    if (state->engine_type == NULL || PyModule_AddType(module, state->engine_type) < 0)
        return -1;
    choose_arithmetic();
    return add_numbers(module);
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    module_state *state = PyModule_GetState(module);

    Py_VISIT(state->engine_type);
    Py_VISIT(state->snapshot_type);
    return 0;
}

static int
module_clear(PyObject *module)
{
    module_state *state = PyModule_GetState(module);

    Py_CLEAR(state->engine_type);
    Py_CLEAR(state->snapshot_type);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "bmgd._engine",
    .m_doc = "The links of one daemon in C; see bmgd.linklayer.",
    .m_size = sizeof(module_state),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC
PyInit__engine(void)
{
    return PyModuleDef_Init(&module_definition);
}
