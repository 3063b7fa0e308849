/* What a relay needs to know of the graph and of a frame to pass it on; no Python object is touched.
 *
 * The snapshot is filled by _fastroute.c, which owns its type, and read by _engine.c without the GIL.
 * bmgd/routing/{header,reference}.py are the same in Python.
 */
#ifndef BMGD_FORWARDING_H
#define BMGD_FORWARDING_H

#include <Python.h>
#include <stdint.h>

#include "_arithmetic.h"

/* ---- frames ------------------------------------------------------------------------------ */

/* The numbers of bmgd/frameheader.py. */
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

/* ---- snapshot ---------------------------------------------------------------------------- */

/* Ids that follow each other, all outside the layout. */
typedef struct {
    uint32_t first;
    uint32_t behind; /* how many ids are outside up to the end of this run */
} outside_run;

typedef struct {
    PyObject_HEAD
    int64_t generation;
    int64_t self_id;
    int64_t id_space;
    int64_t layout_size;
    int64_t rank; /* -1: outside the layout */
    outside_run *outside;
    Py_ssize_t outside_runs;
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

/* How many ids are outside in the runs before one. */
static inline int64_t
outside_before(const snapshot *self, Py_ssize_t run)
{
    return run == 0 ? 0 : self->outside[run - 1].behind;
}

/* The rank of an id, -1 where it has none. */
static inline int64_t
snapshot_rank(const snapshot *self, int64_t id)
{
    Py_ssize_t low = 0, high = self->outside_runs;

    if (id >= self->id_space)
        return -1;
    while (low < high) {
        const Py_ssize_t middle = low + (high - low) / 2;
        if (self->outside[middle].first <= id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return id;
    const outside_run run = self->outside[low - 1];
    const int64_t length = run.behind - outside_before(self, low - 1);
    return id < run.first + length ? -1 : id - run.behind;
}

static inline int64_t
snapshot_id(const snapshot *self, int64_t rank)
{
    Py_ssize_t low = 0, high = self->outside_runs;

    while (low < high) {
        const Py_ssize_t middle = low + (high - low) / 2;
        if ((int64_t)self->outside[middle].first - outside_before(self, middle) <= rank)
            low = middle + 1;
        else
            high = middle;
    }
    return rank + outside_before(self, low);
}

/* The linked jumps that do not lead back to `came_from`. */
static inline uint64_t
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

/* Frames of each class go out on one link in runs of their own: urgent ones (priority 0), high ones (1) and
 * all others. */
enum { URGENT_RUN, HIGH_RUN, BULK_RUN, RUNS_PER_LINK };

static inline int32_t
run_of_class(int32_t slot, uint8_t priority)
{
    return RUNS_PER_LINK * slot + (priority < BULK_RUN ? priority : BULK_RUN);
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
    return run_of_class(slot, header[PRIORITY_AT]);
}

#endif
