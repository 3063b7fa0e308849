/* Heartbeats from which nothing follows: absorbed here, so that an idle daemon's core is not woken.
 *
 * bmgd/linklayer/heartbeats.py is the same in Python: what it takes for a heartbeat this takes for one, and
 * no other bytes. What they said is kept per link until it is asked for.
 */
#ifndef BMGD_ENGINE_HEARTBEATS_H
#define BMGD_ENGINE_HEARTBEATS_H

#include "_engine_links.h"

enum { ARRAY_OF_FIVE = 0x95, FIXINT_LAST = 0x7f, UINT_8 = 0xcc, UINT_64 = 0xcf };
enum { FALSE_BYTE = 0xc2, TRUE_BYTE = 0xc3, DIGEST_PREFIX_BYTES = 2, NOT_POLLED = -1 };

/* Read a number; where it ends, or 0 where there is none within `length` bytes. */
static inline size_t
read_number(const uint8_t *body, size_t length, size_t at, uint64_t *number)
{
    size_t end;

    if (at == 0 || at >= length)
        return 0;
    if (body[at] <= FIXINT_LAST) {
        *number = body[at];
        return at + 1;
    }
    if (body[at] < UINT_8 || body[at] > UINT_64)
        return 0;
    end = at + 1 + ((size_t)1 << (body[at] - UINT_8));
    if (end > length)
        return 0;
    *number = 0;
    for (at++; at < end; at++)
        *number = *number << 8 | body[at];
    return end;
}

/* Whether a body is a heartbeat with the engine's digest; then what it says. */
static inline int
read_heartbeat(const engine *self, const uint8_t *body, size_t length, uint64_t *sequence,
               uint64_t *echo)
{
    static const uint8_t prefix[DIGEST_PREFIX_BYTES] = {0xc4, DIGEST_BYTES};
    size_t at = BODY_PREFIX_BYTES + HEADER_BYTES;

    if (body[0] != ARRAY_OF_FIVE || body[BODY_PREFIX_BYTES + KIND_AT] != HEARTBEAT_KIND)
        return 0;
    at = read_number(body, length, at, sequence);
    at = read_number(body, length, at, echo);
    if (at == 0 || length != at + DIGEST_PREFIX_BYTES + DIGEST_BYTES + 1 || *sequence < 1)
        return 0;
    return memcmp(body + at, prefix, DIGEST_PREFIX_BYTES) == 0
           && memcmp(body + at + DIGEST_PREFIX_BYTES, self->digest, DIGEST_BYTES) == 0
           && (body[length - 1] == FALSE_BYTE || body[length - 1] == TRUE_BYTE);
}

/* Take a heartbeat in, if it is one that is to be absorbed. */
static inline int
absorb_heartbeat(engine *self, bmgd_link *link, const uint8_t *body, size_t length)
{
    beat *kept = &link->beat;
    uint64_t sequence, echo;

    if (!link->absorbs || !read_heartbeat(self, body, length, &sequence, &echo))
        return 0;
    if (kept->count == 0)
        add_number(self, &self->beaten, &self->beaten_count, &self->beaten_capacity, link->number);
    kept->sequence = sequence > kept->sequence ? sequence : kept->sequence;
    kept->echo = echo > kept->echo ? echo : kept->echo;
    kept->at_ns = NOT_POLLED;
    kept->count++;
    return 1;
}

/* The end of a poll: what was absorbed since the last one came now. */
static inline void
mark_beats(engine *self, int64_t now_ns)
{
    for (size_t i = 0; i < self->beaten_count; i++) {
        beat *kept = &find_link(self, self->beaten[i])->beat;
        if (kept->at_ns == NOT_POLLED)
            kept->at_ns = now_ns;
    }
}

#endif
