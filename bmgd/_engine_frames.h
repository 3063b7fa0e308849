/* What came on a link: its frames, and where each one goes; `LinkLayer.feed` in C, without the GIL.
 *
 * A chunk is walked once. Frames one behind another with the same fate are one piece; the pieces of one
 * link and urgency are a run, which is put as a whole, as in _fastroute.c. Runs come before what the core
 * gets. A long run of one piece goes from the chunk to the next socket, without a copy.
 */
#ifndef BMGD_ENGINE_FRAMES_H
#define BMGD_ENGINE_FRAMES_H

#include "_engine_sockets.h"

enum { FRAME_BYTES_MIN = LENGTH_BYTES + BODY_BYTES_MIN, DIRECT_BYTES_MIN = 4096 };

/* What the walk over a chunk finds. */
typedef struct {
    size_t consumed;
    const char *error;
    int32_t piece_count;
    int32_t run_count;
    int32_t first_for_core, last_for_core; /* pieces, -1: none */
} walked;

/* Where the frame before went. */
typedef struct {
    uint64_t flow;
    int32_t slot;
    int is_set;
} flow_cache;

static inline void
refresh_slots(engine *self)
{
    for (Py_ssize_t slot = 0; self->routes != NULL && slot < self->routes->link_count; slot++)
        self->by_slot[slot] = find_link(self, self->routes->links[slot]);
    self->by_slot_stale = 0;
}

/* Add frames one behind another with one fate: to a run, or to what the core gets. */
static inline void
join_run(engine *self, walked *found, const chunk_piece *piece, uint32_t frames)
{
    const int32_t number = found->piece_count, run = piece->run;
    int32_t *first = run < 0 ? &found->first_for_core : &self->runs[run].first;
    int32_t *last = run < 0 ? &found->last_for_core : &self->runs[run].last;

    if (frames == 0)
        return;
    self->pieces[number] = *piece;
    found->piece_count++;
    if (run >= 0) {
        self->runs[run].bytes += piece->length;
        self->runs[run].frames += frames;
        if (*first < 0)
            self->order[found->run_count++] = run;
    }
    if (*first < 0)
        *first = number;
    else
        self->pieces[*last].next = number;
    *last = number;
}

/* The run of a frame that may be relayed, its hop budget spent; -1: the core's. */
static inline int32_t
run_of(const snapshot *routes, uint8_t *header, uint64_t usable, flow_cache *before)
{
    uint64_t flow;

    if (header[KIND_AT] <= LINK_LOCAL_LAST || header[FLAGS_AT] & (FLAG_CAREFUL | FLAG_RECORD)
        || header[HOP_BUDGET_AT] == 0)
        return -1;
    /* The destination and the source. Frames of one flow follow each other, and go the same way. */
    memcpy(&flow, header + DESTINATION_AT, sizeof flow);
    if (flow != before->flow || !before->is_set) {
        const uint32_t destination = big_endian(header + DESTINATION_AT);
        const uint32_t source = big_endian(header + SOURCE_AT);
        before->slot = choose(routes, destination, usable, (uint64_t)source << 32 | destination);
        before->flow = flow;
        before->is_set = 1;
    }
    if (before->slot < 0)
        return -1;
    header[HOP_BUDGET_AT]--;
    return RUNS_PER_LINK * before->slot + (header[PRIORITY_AT] != 0);
}

/* Find the frames; decide where each one goes, its hop budget spent if it goes on. */
static inline void
walk_chunk(engine *self, const bmgd_link *link, uint8_t *bytes, size_t end, walked *found)
{
    const snapshot *routes = self->routes;
    const uint64_t usable = routes == NULL ? 0 : jumps_without(routes, link->came_from);
    chunk_piece piece = {.run = -1, .next = -1};
    flow_cache before = {0};
    uint32_t frames = 0;
    size_t at = 0;

    while (end - at >= LENGTH_BYTES) {
        const size_t length = big_endian(bytes + at);
        uint8_t *body = bytes + at + LENGTH_BYTES;
        int32_t run;

        if (length < BODY_BYTES_MIN || length > FRAME_BYTES_MAX) {
            found->error = BAD_LENGTH;
            break;
        }
        if (end - at - LENGTH_BYTES < length)
            break;
        found->error = malformed(body);
        if (found->error != NULL)
            break;
        run = routes == NULL ? -1 : run_of(routes, body + BODY_PREFIX_BYTES, usable, &before);
        if (run != piece.run) {
            join_run(self, found, &piece, frames);
            piece = (chunk_piece){.at = (uint32_t)at, .run = run, .next = -1};
            frames = 0;
        }
        frames++;
        at += LENGTH_BYTES + length;
        piece.length = (uint32_t)at - piece.at;
    }
    join_run(self, found, &piece, frames);
    found->consumed = at;
}

/* ---- runs --------------------------------------------------------------------------------- */

/* The next hop is gone: its frames go back to the core. */
static inline void
return_run(engine *self, const bmgd_link *link, const uint8_t *bytes, const chunk_run *run)
{
    for (int32_t i = run->first; i >= 0; i = self->pieces[i].next) {
        const chunk_piece *piece = &self->pieces[i];
        for (size_t at = piece->at; at < piece->at + piece->length;) {
            const size_t length = big_endian(bytes + at);
            tell_body(self, link->number, RETURNED, bytes + at + LENGTH_BYTES, length);
            at += LENGTH_BYTES + length;
        }
    }
    self->returned_frames += run->frames;
}

/* Put a run into an outbox that has room for it, or write it at once. */
static inline void
put_run(engine *self, bmgd_link *to, const uint8_t *bytes, const chunk_run *run, int is_urgent)
{
    ring *queue = is_urgent ? &to->out.control : &to->out.bulk;

    self->relayed_runs++;
    self->relayed_frames += run->frames;
    self->relayed_bytes += (int64_t)run->bytes;
    if (to->fd >= 0 && !is_urgent && run->first == run->last && run->bytes >= DIRECT_BYTES_MIN
        && !to->is_blocked) {
        write_link(self, to, bytes + self->pieces[run->first].at, run->bytes);
        return;
    }
    if (ring_reserve(queue, run->bytes) < 0) {
        self->no_memory = 1;
        return;
    }
    ring_mark(queue);
    for (int32_t i = run->first; i >= 0; i = self->pieces[i].next)
        ring_append(queue, bytes + self->pieces[i].at, self->pieces[i].length);
    to->out.was_used = 1;
    mark_waiting(self, to);
}

static inline void
relay_run(engine *self, bmgd_link *link, const uint8_t *bytes, int32_t number)
{
    const chunk_run *run = &self->runs[number];
    bmgd_link *to = self->by_slot[number / RUNS_PER_LINK];
    const int is_urgent = number % RUNS_PER_LINK == 0;
    int has_room;

    mark_heard(self, link);
    if (to == NULL || to->state != UP) {
        return_run(self, link, bytes, run);
        return;
    }
    has_room = is_urgent ? to->out.control.length + run->bytes <= URGENT_BYTES_MAX
                         : to->out.bulk.length + run->bytes <= BULK_BYTES_MAX;
    if (has_room)
        put_run(self, to, bytes, run, is_urgent);
    else if (is_urgent)
        self->dropped_urgent_frames += run->frames;
    else
        self->dropped_bulk_frames += run->frames;
    look_at_backlog(self, to, !has_room);
}

/* ---- the core's ---------------------------------------------------------------------------- */

static inline int
is_known(const engine *self, const uint8_t *body, size_t length)
{
    for (size_t i = 0; i < self->known_count; i++) {
        if ((size_t)PyBytes_GET_SIZE(self->known[i]) == length
            && memcmp(PyBytes_AS_STRING(self->known[i]), body, length) == 0)
            return 1;
    }
    return 0;
}

/* Returns whether reading goes on: not behind the other end's goodbye. */
static inline int
hand_to_core(engine *self, bmgd_link *link, const uint8_t *body, size_t length)
{
    if (is_known(self, body, length)) {
        self->absorbed_frames++;
        mark_heard(self, link);
        return 1;
    }
    if (body[BODY_PREFIX_BYTES + KIND_AT] != GOODBYE_KIND) {
        tell_body(self, link->number, FRAME, body, length);
        return 1;
    }
    if (link->state == CLOSING) {
        link->state = LEFT;
        if (link->fd >= 0)
            watch(self, link);
    } else {
        if (link->state == UP)
            tell_body(self, link->number, GOODBYE, body, length);
        forget_link(self, link);
        if (link->state != UP)
            tell(self, link->number, CLOSED, 0);
    }
    return 0;
}

static inline int
hand_pieces_to_core(engine *self, bmgd_link *link, const uint8_t *bytes, const walked *found)
{
    for (int32_t i = found->first_for_core; i >= 0; i = self->pieces[i].next) {
        const chunk_piece *piece = &self->pieces[i];
        for (size_t at = piece->at; at < piece->at + piece->length;) {
            const size_t length = big_endian(bytes + at);
            if (!hand_to_core(self, link, bytes + at + LENGTH_BYTES, length))
                return 0;
            at += LENGTH_BYTES + length;
        }
    }
    return 1;
}

/* Take the whole frames from the front of a chunk; how many bytes they are. There are enough pieces for
 * `end` bytes. Afterwards the link may be gone, or read no more. */
static inline size_t
take_frames(engine *self, bmgd_link *link, uint8_t *bytes, size_t end)
{
    walked found = {.first_for_core = -1, .last_for_core = -1};

    if (self->by_slot_stale)
        refresh_slots(self);
    walk_chunk(self, link, bytes, end, &found);
    for (int32_t i = 0; i < found.run_count; i++) {
        relay_run(self, link, bytes, self->order[i]);
        self->runs[self->order[i]] = (chunk_run){.first = -1, .last = -1};
    }
    if (hand_pieces_to_core(self, link, bytes, &found) && found.error != NULL)
        end_link(self, link, MALFORMED, 0, found.error);
    return found.consumed;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* The receive buffer is another link's now: keep the beginning of a frame that it holds. */
static inline int
set_rest_aside(engine *self)
{
    bmgd_link *owner = self->owner;

    self->owner = NULL;
    if (owner == NULL || self->rest_bytes == 0)
        return 0;
    if (grow(self, &owner->rest, &owner->rest_capacity, self->rest_bytes, 1) < 0)
        return -1;
    memcpy(owner->rest, self->buffer + self->rest_at, self->rest_bytes);
    owner->rest_bytes = self->rest_bytes;
    self->rest_bytes = 0;
    return 0;
}

/* Have the receive buffer hold this link's rest, with room for one read behind it. */
static inline int
own_buffer(engine *self, bmgd_link *link)
{
    if (self->owner != link) {
        if (set_rest_aside(self) < 0)
            return -1;
        self->owner = link;
        self->rest_at = 0;
        self->rest_bytes = link->rest_bytes;
        if (link->rest_bytes > 0)
            memcpy(self->buffer, link->rest, link->rest_bytes);
        link->rest_bytes = 0;
    } else if (self->rest_bytes == 0)
        self->rest_at = 0;
    else if (self->rest_at + self->rest_bytes + READ_BYTES > BUFFER_BYTES) {
        memmove(self->buffer, self->buffer + self->rest_at, self->rest_bytes);
        self->rest_at = 0;
    }
    return 0;
}

/* Read once; how many bytes. The link may be gone afterwards. */
static inline size_t
read_link(engine *self, bmgd_link *link)
{
    uint8_t *bytes;
    size_t end, consumed;
    ssize_t count;

    if (own_buffer(self, link) < 0)
        return 0;
    bytes = self->buffer + self->rest_at;
    do
        count = recv(link->fd, bytes + self->rest_bytes, READ_BYTES, MSG_DONTWAIT);
    while (count < 0 && errno == EINTR);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        if (link->broken)
            finish_link(self, link, link->broken);
        return 0;
    }
    if (count <= 0) {
        finish_link(self, link, link->broken ? link->broken : count < 0 ? errno : 0);
        return 0;
    }
    self->received_bytes += count;
    end = self->rest_bytes + (size_t)count;
    consumed = take_frames(self, link, bytes, end);
    if (link->gone || link->state == LEFT)
        self->rest_bytes = 0;
    else {
        self->rest_at += consumed;
        self->rest_bytes = end - consumed;
    }
    return (size_t)count;
}

/* Links whose writing failed end once all that came on them is read. */
static inline void
read_broken(engine *self)
{
    for (size_t i = self->link_count; i-- > 0 && self->broken_count > 0;) {
        bmgd_link *link = self->all[i];
        if (!link->broken)
            continue;
        if (link->state == LEFT)
            finish_link(self, link, link->broken);
        else
            read_link(self, link);
    }
}

/* Read a ready socket; whether it may have more. */
static inline int
serve_reading(engine *self, bmgd_link *link, size_t *received)
{
    const size_t count = read_link(self, link);

    *received += count;
    return count == READ_BYTES;
}

/* Read what is ready, in rounds, so that none starves the others; write where there is room again. What
 * was relayed is written at the end: one write for what several reads gave. */
static inline void
serve_sockets(engine *self)
{
    struct epoll_event events[EVENTS_MAX];
    const int ready = epoll_wait(self->epoll, events, EVENTS_MAX, 0);
    int64_t full[EVENTS_MAX];
    size_t received = 0;
    int count = 0;

    for (int i = 0; i < ready && received < ROUND_BYTES_MAX; i++) {
        const uint32_t what = events[i].events;
        bmgd_link *link = find_link(self, (int64_t)events[i].data.u64);
        if (link == NULL)
            continue;
        if (what & EPOLLOUT || link->state == LEFT) {
            link->is_blocked = 0;
            write_link(self, link, NULL, 0);
        }
        if (!link->gone && link->state != LEFT && what & (EPOLLIN | EPOLLHUP | EPOLLERR)
            && serve_reading(self, link, &received))
            full[count++] = link->number;
    }
    for (int round = 1; round < READS_MAX && count > 0; round++) {
        const int before = count;
        count = 0;
        for (int i = 0; i < before && received < ROUND_BYTES_MAX; i++) {
            bmgd_link *link = find_link(self, full[i]);
            if (link != NULL && link->state != LEFT && serve_reading(self, link, &received))
                full[count++] = link->number;
        }
    }
    if (self->broken_count > 0)
        read_broken(self);
    write_waiting(self);
}

#endif
