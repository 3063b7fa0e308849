/* The links of an engine: a table by link id, their states, and what happened on them.
 *
 * bmgd/linklayer/layer.py is the same in Python, with the theory and the table of states. What happens is
 * written down as plain numbers and bytes, so that all of it works without the GIL; `engine_take_happened`
 * in _engine.c makes Python objects of it.
 */
#ifndef BMGD_ENGINE_LINKS_H
#define BMGD_ENGINE_LINKS_H

#include <Python.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "_engine_outbox.h"
#include "_forwarding.h"

/* The numbers of bmgd/linklayer/contract.py. */
enum { RAW, CONTROL, URGENT, BULK, HIGH };
enum { PUT, DROPPED, OVER_BOUND, NO_LINK };
enum { FRAME, END, MALFORMED, GOODBYE, BACKLOGGED, WRITABLE, RETURNED, WRITTEN, CLOSED };
enum {
    BACKLOG_HIGH_BYTES = 256 * 1024,
    BACKLOG_LOW_BYTES = 64 * 1024,
    KNOWN_NOTICES_MAX = 64
};

/* Kinds of frames; bmgd/wire/link_formats.py. */
enum { HEARTBEAT_KIND = 0x01, GOODBYE_KIND = 0x07 };

enum { DIGEST_BYTES = 16 };

enum {
    READ_BYTES = 128 * 1024,
    READS_MAX = 2, /* of one link in one poll */
    BUFFER_BYTES = 2 * READ_BYTES,
    ROUND_BYTES_MAX = 1024 * 1024 /* of all links */
};

typedef enum { UP, CLOSING, SAID, LEFT } link_state;

/* What the heartbeats said that were absorbed on a link; `_engine_heartbeats.h`. */
typedef struct {
    int64_t at_ns;
    uint64_t sequence, echo; /* the highest */
    int64_t count;           /* 0: nothing to tell, the link is not in `beaten` */
} beat;

/* One link. */
typedef struct {
    int64_t number;
    int64_t came_from; /* -1: not known */
    int fd;            /* -1: fed and emptied as bytes */
    int broken;        /* the errno of a write that failed; the link ends at the next poll */
    uint32_t watched;  /* the events that epoll tells */
    link_state state;
    uint8_t is_blocked; /* the socket takes nothing until epoll says so */
    int64_t blocked_ns; /* since when */
    int unsent_bytes;   /* TCP_NOTSENT_LOWAT as it is, 0 where it is left alone */
    int unsent_bytes_min;
    uint8_t is_deferred; /* not read for a moment */
    uint8_t backlogged;
    uint8_t gone;
    uint8_t is_heard;   /* is in the list of those heard */
    uint8_t absorbs;    /* heartbeats with the engine's digest */
    uint8_t is_waiting; /* is in the list of those to be emptied, or to be written */
    uint8_t *rest;      /* the beginning of a frame that was set aside */
    size_t rest_bytes;
    size_t rest_capacity;
    beat beat;
    uint64_t turn; /* the engine's when it was read last */
    outbox out;
} bmgd_link;

/* Something for the core; bytes lie in the engine's arena. */
typedef struct {
    int64_t link;
    int what;
    int64_t number;
    const char *text;
    size_t at;
    size_t length;
} happening;

/* Frames of a chunk, one behind another, that join the same run; -1 is the core. */
typedef struct {
    uint32_t at;
    uint32_t length;
    int32_t run;
    int32_t next; /* piece of the run, -1 at its end */
} chunk_piece;

/* The frames of a chunk that go out on one link at one urgency. */
typedef struct {
    size_t bytes;
    uint32_t frames;
    int32_t first; /* piece, -1: the run is not in use */
    int32_t last;
} chunk_run;

/* Where the frames of a flow go; it holds while `epoch` is the engine's. */
typedef struct {
    uint64_t flow;
    uint64_t epoch;
    int32_t slot;
} known_flow;

enum { FLOWS_KEPT = 64 };

typedef struct {
    PyObject_HEAD
    int epoll;
    int is_busy;
    int no_memory;
    snapshot *routes; /* NULL before the first one */

    bmgd_link **table; /* open addressing by link id */
    size_t table_size;
    bmgd_link **all; /* in no order */
    size_t link_count;
    size_t all_capacity;
    uint64_t turn; /* of reading: how often all that were ready were read */
    bmgd_link **ended; /* freed when the GIL is held again */
    size_t ended_count;
    size_t ended_capacity;
    bmgd_link **by_slot; /* of the snapshot; stale when a link came or went */
    int by_slot_stale;
    chunk_run *runs;
    int32_t *order;
    known_flow flows[FLOWS_KEPT]; /* by destination */
    uint64_t flow_epoch;
    int64_t flows_of, flows_from; /* the link, and the id at its other end */

    int64_t *heard;
    size_t heard_count, heard_capacity;
    int64_t *beaten; /* on which heartbeats were absorbed */
    size_t beaten_count, beaten_capacity;
    uint8_t digest[DIGEST_BYTES];
    int64_t *waiting; /* without a descriptor: to be emptied */
    size_t waiting_count, waiting_capacity;
    int64_t *unwritten; /* with a descriptor: to be written by flush, or broken */
    size_t unwritten_count, unwritten_capacity;
    size_t broken_count;

    int timer; /* ends a deferral; its number in epoll is 0, no link's */
    int64_t *deferred;
    size_t deferred_count, deferred_capacity;
    int is_stuck; /* of the chunk that was taken last: all of it waits behind full sockets */

    happening *happened;
    size_t happened_count, happened_capacity;
    uint8_t *arena;
    size_t arena_bytes, arena_capacity;

    PyObject *known[KNOWN_NOTICES_MAX]; /* bytes, the oldest at known_at */
    size_t known_count, known_at;

    uint8_t *buffer; /* BUFFER_BYTES; holds the rest of `owner` at rest_at */
    bmgd_link *owner;
    size_t rest_at, rest_bytes;
    chunk_piece *pieces;
    size_t piece_capacity;

    int64_t received_bytes, sent_bytes;
    int64_t relayed_runs, relayed_frames, relayed_bytes;
    int64_t absorbed_frames, dropped_urgent_frames, dropped_bulk_frames, returned_frames;
} engine;

/* ---- arrays that grow --------------------------------------------------------------------- */

/* Make room for `needed` items; -1 where there is no memory, which is also noted. */
static inline int
grow(engine *self, void *items, size_t *capacity, size_t needed, size_t item_bytes)
{
    void **array = items, *grown;
    size_t wanted = *capacity > 0 ? *capacity : 16;

    if (needed <= *capacity)
        return 0;
    while (wanted < needed)
        wanted *= 2;
    grown = PyMem_RawRealloc(*array, wanted * item_bytes);
    if (grown == NULL) {
        self->no_memory = 1;
        return -1;
    }
    *array = grown;
    *capacity = wanted;
    return 0;
}

/* Add a number to a list. */
static inline void
add_number(engine *self, int64_t **numbers, size_t *count, size_t *capacity, int64_t number)
{
    if (grow(self, numbers, capacity, *count + 1, sizeof **numbers) == 0)
        (*numbers)[(*count)++] = number;
}

static inline void
remove_number(int64_t *numbers, size_t *count, int64_t number)
{
    for (size_t i = 0; i < *count; i++) {
        if (numbers[i] == number) {
            memmove(numbers + i, numbers + i + 1, (*count - i - 1) * sizeof *numbers);
            --*count;
            return;
        }
    }
}

/* ---- what happened ------------------------------------------------------------------------ */

static inline happening *
tell(engine *self, int64_t link, int what, int64_t number)
{
    happening *told;

    if (grow(self, &self->happened, &self->happened_capacity, self->happened_count + 1,
             sizeof *self->happened) < 0)
        return NULL;
    told = &self->happened[self->happened_count++];
    *told = (happening){.link = link, .what = what, .number = number};
    return told;
}

/* Tell of `length` bytes; where to copy them to, NULL without memory. */
static inline uint8_t *
tell_bytes(engine *self, int64_t link, int what, size_t length)
{
    const size_t at = self->arena_bytes;
    happening *told;

    if (grow(self, &self->arena, &self->arena_capacity, at + length, 1) < 0)
        return NULL;
    told = tell(self, link, what, 0);
    if (told == NULL)
        return NULL;
    told->at = at;
    told->length = length;
    self->arena_bytes += length;
    return self->arena + at;
}

static inline void
tell_body(engine *self, int64_t link, int what, const uint8_t *body, size_t length)
{
    uint8_t *to = tell_bytes(self, link, what, length);

    if (to != NULL)
        memcpy(to, body, length);
}

static inline void
mark_heard(engine *self, bmgd_link *link)
{
    if (link->is_heard)
        return;
    link->is_heard = 1;
    add_number(self, &self->heard, &self->heard_count, &self->heard_capacity, link->number);
}

/* Something was put: the link is to be emptied, or to be written. */
static inline void
mark_waiting(engine *self, bmgd_link *link)
{
    if (link->is_waiting)
        return;
    link->is_waiting = 1;
    if (link->fd < 0)
        add_number(self, &self->waiting, &self->waiting_count, &self->waiting_capacity,
                   link->number);
    else
        add_number(self, &self->unwritten, &self->unwritten_count, &self->unwritten_capacity,
                   link->number);
}

/* ---- the table ---------------------------------------------------------------------------- */

static inline size_t
table_place(const engine *self, int64_t number)
{
    return (size_t)(((uint64_t)number * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (self->table_size - 1);
}

static inline bmgd_link *
find_link(const engine *self, int64_t number)
{
    if (self->table_size == 0)
        return NULL;
    for (size_t at = table_place(self, number); self->table[at] != NULL;
         at = (at + 1) & (self->table_size - 1)) {
        if (self->table[at]->number == number)
            return self->table[at];
    }
    return NULL;
}

static inline void
table_enter(engine *self, bmgd_link *link)
{
    size_t at = table_place(self, link->number);

    while (self->table[at] != NULL)
        at = (at + 1) & (self->table_size - 1);
    self->table[at] = link;
}

/* Make room for one more link everywhere where ending it must not need memory. -1: there is none. */
static inline int
table_reserve(engine *self)
{
    const size_t size = self->table_size > 0 ? 2 * self->table_size : 16;
    bmgd_link **table;

    if (grow(self, &self->all, &self->all_capacity, self->link_count + 1, sizeof *self->all) < 0
        || grow(self, &self->ended, &self->ended_capacity,
                self->link_count + self->ended_count + 1, sizeof *self->ended) < 0)
        return -1;
    if (2 * (self->link_count + 1) <= self->table_size)
        return 0;
    table = PyMem_RawCalloc(size, sizeof *table);
    if (table == NULL)
        return -1;
    PyMem_RawFree(self->table);
    self->table = table;
    self->table_size = size;
    for (size_t i = 0; i < self->link_count; i++)
        table_enter(self, self->all[i]);
    return 0;
}

static inline void
table_remove(engine *self, const bmgd_link *link)
{
    const size_t last = self->table_size - 1;
    size_t hole = table_place(self, link->number);

    while (self->table[hole] != link)
        hole = (hole + 1) & last;
    /* Move back what would not be found any more. */
    for (size_t at = (hole + 1) & last; self->table[at] != NULL; at = (at + 1) & last) {
        const size_t place = table_place(self, self->table[at]->number);
        if (((at - place) & last) >= ((at - hole) & last)) {
            self->table[hole] = self->table[at];
            hole = at;
        }
    }
    self->table[hole] = NULL;
}

/* ---- ending ------------------------------------------------------------------------------- */

/* Tell the routed frames that were not written whole, in the order of writing. */
static inline void
return_unsent(engine *self, bmgd_link *link)
{
    outbox *out = &link->out;
    const ring *const queues[] = {&out->control, &out->high, &out->bulk};

    if (out->begun_bytes > 0 && out->begun[LENGTH_BYTES + BODY_PREFIX_BYTES + KIND_AT] >= ROUTED_FIRST) {
        tell_body(self, link->number, RETURNED, out->begun + LENGTH_BYTES,
                  out->begun_bytes - LENGTH_BYTES);
        self->returned_frames++;
    }
    for (size_t i = 0; i < Py_ARRAY_LENGTH(queues); i++) {
        for (size_t at = 0; at < queues[i]->length;) {
            const size_t length = ring_frame(queues[i], at);
            uint8_t kind, *to;
            ring_copy(queues[i], at + LENGTH_BYTES + BODY_PREFIX_BYTES + KIND_AT, &kind, 1);
            if (kind >= ROUTED_FIRST) {
                to = tell_bytes(self, link->number, RETURNED, length - LENGTH_BYTES);
                if (to != NULL)
                    ring_copy(queues[i], at + LENGTH_BYTES, to, length - LENGTH_BYTES);
                self->returned_frames++;
            }
            at += length;
        }
    }
}

/* Take a link out of everything, close its socket, and tell its unsent frames. */
static inline void
forget_link(engine *self, bmgd_link *link)
{
    table_remove(self, link);
    for (size_t i = 0; i < self->link_count; i++) {
        if (self->all[i] == link) {
            self->all[i] = self->all[--self->link_count];
            break;
        }
    }
    self->by_slot_stale = 1;
    self->flow_epoch++;
    if (link->is_heard)
        remove_number(self->heard, &self->heard_count, link->number);
    if (link->beat.count > 0)
        remove_number(self->beaten, &self->beaten_count, link->number);
    if (link->is_waiting && link->fd < 0)
        remove_number(self->waiting, &self->waiting_count, link->number);
    if (link->broken)
        self->broken_count--;
    if (self->owner == link) {
        self->owner = NULL;
        self->rest_bytes = 0;
    }
    if (link->fd >= 0) {
        /* Level-triggered: what is closed leaves the set at once. */
        epoll_ctl(self->epoll, EPOLL_CTL_DEL, link->fd, NULL);
        close(link->fd);
        link->fd = -1;
    }
    link->gone = 1;
    self->ended[self->ended_count++] = link;
    return_unsent(self, link);
}

/* A link is gone without its owner's doing; `end_link` in the table of layer.py. */
static inline void
end_link(engine *self, bmgd_link *link, int what, int64_t number, const char *text)
{
    const link_state state = link->state;

    if (state == UP) {
        happening *told = tell(self, link->number, what, number);
        if (told != NULL)
            told->text = text;
    }
    forget_link(self, link);
    if (state != UP)
        tell(self, link->number, CLOSED, 0);
}

/* The stream of a link is over: 0 for its end, or an errno. */
static inline void
finish_link(engine *self, bmgd_link *link, int number)
{
    if (link->state != LEFT || number != 0)
        end_link(self, link, END, number, NULL);
}

/* ---- putting ------------------------------------------------------------------------------ */

static inline void
look_at_backlog(engine *self, bmgd_link *link, int dropped)
{
    const size_t bytes = outbox_backlog(&link->out);

    if (!link->backlogged && (dropped || bytes > BACKLOG_HIGH_BYTES)) {
        link->backlogged = 1;
        tell(self, link->number, BACKLOGGED, (int64_t)bytes);
    }
}

/* What follows when something was written: the backlog may be over, and a shut link's last byte out.
 * Returns whether the writing side is to be ended now. */
static inline int
after_writing(engine *self, bmgd_link *link)
{
    const size_t bytes = outbox_backlog(&link->out);

    if (link->backlogged && bytes <= BACKLOG_LOW_BYTES) {
        link->backlogged = 0;
        if (link->state == UP)
            tell(self, link->number, WRITABLE, (int64_t)bytes);
    }
    if (bytes > 0 || link->state == UP)
        return 0;
    if (link->state == LEFT) {
        end_link(self, link, CLOSED, 0, NULL);
        return 0;
    }
    if (link->state == SAID)
        return 0;
    link->state = SAID;
    return 1;
}

#endif
