/* What waits to be written to one link; bmgd/linklayer/outbox.py is the same in Python, with the reasons.
 *
 * The order of writing: raw, the rest of a frame that was begun, control, high, bulk, the goodbye. Rings hold
 * whole frames one behind another, so the frame that a partial write cut is found by walking lengths;
 * it is kept apart with its beginning, and what stands behind it may be overtaken. No Python object is
 * touched. Rings grow by doubling, which ends at the bounds; apart from that nothing is allocated.
 */
#ifndef BMGD_ENGINE_OUTBOX_H
#define BMGD_ENGINE_OUTBOX_H

#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "_forwarding.h"

/* The bounds of bmgd/linklayer/outbox.py. */
enum {
    BULK_BYTES_MAX = 8 * 1024 * 1024,
    CONTROL_BYTES_MAX = 4 * 1024 * 1024,
    URGENT_BYTES_MAX = CONTROL_BYTES_MAX / 2,
    HIGH_BYTES_MAX = URGENT_BYTES_MAX,
    BULK_SHARE = 7,
    BULK_TURN_BYTES = BULK_SHARE * 64 * 1024
};

enum { RING_BYTES_MIN = 512, RING_BYTES_KEPT = 64 * 1024, MARK_DISTANCE_BYTES = 16 * 1024 };

/* ---- rings ------------------------------------------------------------------------------- */

/* Bytes in order; the capacity is 0 or a power of two. Marks say where some of the frames begin, so that
 * the one that a write cut is found without a walk over all that was written. */
typedef struct {
    uint8_t *bytes;
    size_t capacity;
    size_t head;
    size_t length;
    uint64_t dropped; /* since the ring was empty last; marks count from there */
    uint64_t *marks;  /* ascending, from first_mark on */
    size_t first_mark, mark_count, mark_capacity;
} ring;

static inline void
ring_free(ring *self)
{
    PyMem_RawFree(self->bytes);
    PyMem_RawFree(self->marks);
    *self = (ring){0};
}

/* Copy `length` bytes from `at` on, counted from the front. */
static inline void
ring_copy(const ring *self, size_t at, uint8_t *to, size_t length)
{
    const size_t from = (self->head + at) & (self->capacity - 1);
    const size_t first = length < self->capacity - from ? length : self->capacity - from;

    memcpy(to, self->bytes + from, first);
    memcpy(to + first, self->bytes, length - first);
}

/* Make room for `more` bytes; -1 where there is no memory. */
static inline int
ring_reserve(ring *self, size_t more)
{
    size_t capacity = self->capacity > 0 ? self->capacity : RING_BYTES_MIN;
    uint8_t *bytes;

    if (self->length + more <= self->capacity)
        return 0;
    while (capacity < self->length + more)
        capacity *= 2;
    bytes = PyMem_RawMalloc(capacity);
    if (bytes == NULL)
        return -1;
    if (self->length > 0)
        ring_copy(self, 0, bytes, self->length);
    PyMem_RawFree(self->bytes);
    self->bytes = bytes;
    self->capacity = capacity;
    self->head = 0;
    return 0;
}

/* Remember that a frame begins at the end of the ring; without memory it is only slower to find. */
static inline void
ring_mark(ring *self)
{
    const uint64_t at = self->dropped + self->length;
    uint64_t *marks;

    if (self->length == 0
        || (self->mark_count > 0
            && at - self->marks[self->first_mark + self->mark_count - 1] < MARK_DISTANCE_BYTES))
        return;
    if (self->first_mark + self->mark_count == self->mark_capacity) {
        if (self->first_mark > self->mark_count) {
            memcpy(self->marks, self->marks + self->first_mark, self->mark_count * sizeof *marks);
            self->first_mark = 0;
        } else {
            const size_t capacity = self->mark_capacity > 0 ? 2 * self->mark_capacity : 8;
            marks = PyMem_RawRealloc(self->marks, capacity * sizeof *marks);
            if (marks == NULL)
                return;
            self->marks = marks;
            self->mark_capacity = capacity;
        }
    }
    self->marks[self->first_mark + self->mark_count++] = at;
}

/* Where the last marked frame begins that is not behind `at`, counted from the front; 0 without. */
static inline size_t
ring_marked(ring *self, size_t at)
{
    size_t found = 0;

    while (self->mark_count > 0 && self->marks[self->first_mark] <= self->dropped + at) {
        if (self->marks[self->first_mark] >= self->dropped)
            found = (size_t)(self->marks[self->first_mark] - self->dropped);
        self->first_mark++;
        self->mark_count--;
    }
    return found;
}

/* Add bytes for which there is room. */
static inline void
ring_append(ring *self, const uint8_t *bytes, size_t length)
{
    size_t at, first;

    if (length == 0)
        return;
    at = (self->head + self->length) & (self->capacity - 1);
    first = length < self->capacity - at ? length : self->capacity - at;
    memcpy(self->bytes + at, bytes, first);
    memcpy(self->bytes, bytes + first, length - first);
    self->length += length;
}

static inline void
ring_drop(ring *self, size_t length)
{
    self->length -= length;
    self->dropped += length;
    self->head = (self->head + length) & (self->capacity - 1);
    if (self->length == 0) {
        self->head = self->first_mark = self->mark_count = 0;
        self->dropped = 0;
    }
}

/* The one or two parts of the first `length` bytes that a ring holds; how many. */
static inline int
ring_parts(const ring *self, size_t length, struct iovec *parts)
{
    const size_t first =
        length < self->capacity - self->head ? length : self->capacity - self->head;

    if (length == 0)
        return 0;
    parts[0] = (struct iovec){self->bytes + self->head, first};
    if (first == length)
        return 1;
    parts[1] = (struct iovec){self->bytes, length - first};
    return 2;
}

/* The length of the frame that begins at `at`, its prefix included. */
static inline size_t
ring_frame(const ring *self, size_t at)
{
    uint8_t length[LENGTH_BYTES];

    ring_copy(self, at, length, LENGTH_BYTES);
    return LENGTH_BYTES + big_endian(length);
}

/* How many bytes the first whole frames have that have at least `least`; all, where there are fewer.
 * O(frames). */
static inline size_t
ring_first(const ring *self, size_t least)
{
    size_t at = 0;

    if (least >= self->length)
        return self->length;
    while (at < least)
        at += ring_frame(self, at);
    return at;
}

/* ---- the outbox -------------------------------------------------------------------------- */

typedef struct {
    ring raw;
    ring control;
    ring high;
    ring bulk;
    size_t passed_bytes; /* what overtook bulk that waits, less what bulk has sent of its share */
    int is_turn_of_bulk;
    uint8_t *begun; /* a whole frame, of which the first begun_at bytes are written */
    size_t begun_at;
    size_t begun_bytes;
    size_t begun_capacity;
    uint8_t *goodbye;
    size_t goodbye_bytes;
    int was_used; /* since the last trim */
} outbox;

enum { OUTBOX_PARTS = 10 };

static inline size_t
outbox_backlog(const outbox *self)
{
    return self->raw.length + (self->begun_bytes - self->begun_at) + self->control.length
           + self->high.length + self->bulk.length + self->goodbye_bytes;
}

static inline void
outbox_free(outbox *self)
{
    ring_free(&self->raw);
    ring_free(&self->control);
    ring_free(&self->high);
    ring_free(&self->bulk);
    PyMem_RawFree(self->begun);
    PyMem_RawFree(self->goodbye);
    *self = (outbox){0};
}

/* Give back what a burst needed, once that is unused. */
static inline void
outbox_trim(outbox *self)
{
    if (!self->was_used && outbox_backlog(self) == 0) {
        if (self->raw.capacity > 0)
            ring_free(&self->raw);
        if (self->control.capacity > RING_BYTES_KEPT)
            ring_free(&self->control);
        if (self->high.capacity > 0)
            ring_free(&self->high);
        if (self->bulk.capacity > RING_BYTES_KEPT)
            ring_free(&self->bulk);
        PyMem_RawFree(self->begun);
        self->begun = NULL;
        self->begun_capacity = 0;
    }
    self->was_used = 0;
}

/* Room for one frame that was begun; -1 where there is no memory. */
static inline int
outbox_begin(outbox *self, size_t length, size_t written)
{
    if (length > self->begun_capacity) {
        uint8_t *bytes = PyMem_RawMalloc(length);
        if (bytes == NULL)
            return -1;
        PyMem_RawFree(self->begun);
        self->begun = bytes;
        self->begun_capacity = length;
    }
    self->begun_bytes = length;
    self->begun_at = written;
    return 0;
}

/* Add whole frames at the end of a queue; 0 where the bound has no room. -1: no memory. */
static inline int
outbox_put(outbox *self, ring *queue, const uint8_t *bytes, size_t length, size_t bytes_max)
{
    if (queue->length + length > bytes_max)
        return 0;
    if (ring_reserve(queue, length) < 0)
        return -1;
    ring_mark(queue);
    ring_append(queue, bytes, length);
    self->was_used = 1;
    return 1;
}

/* The buffers to write next, in order, at most OUTBOX_PARTS; they end where the turn of bulk begins or ends.
 * `extra` are bulk frames that are in no queue yet. */
static inline int
outbox_gather(outbox *self, const uint8_t *extra, size_t extra_bytes, struct iovec *parts)
{
    const size_t first = self->control.length + self->high.length;
    int found = ring_parts(&self->raw, self->raw.length, parts);

    if (self->begun_bytes > 0)
        parts[found++] =
            (struct iovec){self->begun + self->begun_at, self->begun_bytes - self->begun_at};
    if (self->is_turn_of_bulk) {
        const size_t owed = (self->passed_bytes + BULK_SHARE - 1) / BULK_SHARE;
        return found + ring_parts(&self->bulk, ring_first(&self->bulk, owed), parts + found);
    }
    if (self->bulk.length + extra_bytes > 0 && first >= BULK_TURN_BYTES - self->passed_bytes) {
        const size_t left = BULK_TURN_BYTES - self->passed_bytes;
        found += ring_parts(&self->control, ring_first(&self->control, left), parts + found);
        if (left > self->control.length)
            found += ring_parts(&self->high, ring_first(&self->high, left - self->control.length),
                                parts + found);
        return found;
    }
    found += ring_parts(&self->control, self->control.length, parts + found);
    found += ring_parts(&self->high, self->high.length, parts + found);
    found += ring_parts(&self->bulk, self->bulk.length, parts + found);
    if (extra_bytes > 0)
        parts[found++] = (struct iovec){(void *)(uintptr_t)extra, extra_bytes};
    else if (self->goodbye_bytes > 0)
        parts[found++] = (struct iovec){self->goodbye, self->goodbye_bytes};
    return found;
}

/* Forget so many bytes from the front of a queue; how many there were too many, -1: no memory. */
static inline Py_ssize_t
outbox_advance_queue(outbox *self, ring *queue, size_t written)
{
    size_t at, end;

    if (written >= queue->length) {
        written -= queue->length;
        ring_drop(queue, queue->length);
        return (Py_ssize_t)written;
    }
    at = ring_marked(queue, written);
    for (end = at + ring_frame(queue, at); end <= written; end += ring_frame(queue, end))
        at = end;
    if (at < written) {
        if (outbox_begin(self, end - at, written - at) < 0)
            return -1;
        ring_copy(queue, at, self->begun, end - at);
        at = end;
    }
    ring_drop(queue, at);
    return 0;
}

/* Bulk has sent so many bytes of its share. */
static inline void
outbox_spend(outbox *self, size_t bytes)
{
    const size_t spent = BULK_SHARE * bytes;

    self->passed_bytes -= spent < self->passed_bytes ? spent : self->passed_bytes;
}

/* The turn of bulk begins when enough has overtaken it, and ends when it has sent its share. */
static inline void
outbox_settle_turn(outbox *self, size_t extra_bytes)
{
    if (self->bulk.length + extra_bytes == 0)
        self->passed_bytes = 0;
    if (self->passed_bytes == 0)
        self->is_turn_of_bulk = 0;
    else if (self->passed_bytes >= BULK_TURN_BYTES)
        self->is_turn_of_bulk = 1;
}

/* So many bytes from the front of what `outbox_gather` told were written, the `extra_bytes` that are in no
 * queue not counted. -1: no memory. */
static inline int
outbox_advance(outbox *self, size_t written, size_t extra_bytes)
{
    ring *const first[] = {&self->control, &self->high};
    Py_ssize_t left;
    size_t some = written < self->raw.length ? written : self->raw.length;

    ring_drop(&self->raw, some);
    written -= some;
    some = self->begun_bytes - self->begun_at;
    some = written < some ? written : some;
    self->begun_at += some;
    written -= some;
    if (self->begun_at == self->begun_bytes)
        self->begun_at = self->begun_bytes = 0;
    left = (Py_ssize_t)written;
    for (size_t i = 0; i < Py_ARRAY_LENGTH(first) && left > 0 && !self->is_turn_of_bulk; i++) {
        const size_t before = first[i]->length;
        left = outbox_advance_queue(self, first[i], (size_t)left);
        if (self->bulk.length + extra_bytes > 0)
            self->passed_bytes += before - first[i]->length;
    }
    if (left > 0) {
        const size_t before = self->bulk.length;
        left = outbox_advance_queue(self, &self->bulk, (size_t)left);
        outbox_spend(self, before - self->bulk.length);
    }
    outbox_settle_turn(self, extra_bytes);
    if (left > 0) {
        if ((size_t)left < self->goodbye_bytes) {
            if (outbox_begin(self, self->goodbye_bytes, (size_t)left) < 0)
                return -1;
            memcpy(self->begun, self->goodbye, self->goodbye_bytes);
        }
        self->goodbye_bytes = 0;
    }
    return left < 0 ? -1 : 0;
}

/* Of the bulk frames that were in no queue, so many bytes were written: keep the rest. -1: no memory. */
static inline int
outbox_keep_extra(outbox *self, const uint8_t *extra, size_t extra_bytes, size_t written)
{
    size_t at = 0;

    while (at < written) {
        const size_t end = at + LENGTH_BYTES + big_endian(extra + at);
        if (end > written) {
            if (outbox_begin(self, end - at, written - at) < 0)
                return -1;
            memcpy(self->begun, extra + at, end - at);
        }
        at = end;
    }
    outbox_spend(self, at);
    if (at == extra_bytes)
        return 0;
    if (ring_reserve(&self->bulk, extra_bytes - at) < 0)
        return -1;
    ring_mark(&self->bulk);
    ring_append(&self->bulk, extra + at, extra_bytes - at);
    self->was_used = 1;
    return 0;
}

#endif
