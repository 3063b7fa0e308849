/* What came on a link: its frames, and where each one goes; `LinkLayer.feed` in C, without the GIL.
 *
 * A chunk is walked once. Frames one behind another with the same fate are one piece; the pieces of one
 * link and urgency are a run, which is put as a whole, as in _fastroute.c. Runs come before what the core
 * gets. A long run of one piece goes from the chunk to the next socket, without a copy.
 */
#ifndef BMGD_ENGINE_FRAMES_H
#define BMGD_ENGINE_FRAMES_H

#include "_engine_heartbeats.h"
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

/* Where frames of a flow (destination and source) go by the snapshot, from a link: remembered. */
static inline int32_t
slot_of_flow(engine *self, const uint8_t *header, uint64_t usable)
{
    const uint32_t destination = big_endian(header + DESTINATION_AT);
    const uint64_t flow = (uint64_t)big_endian(header + SOURCE_AT) << 32 | destination;
    known_flow *known = &self->flows[destination % FLOWS_KEPT];

    if (known->flow != flow || known->epoch != self->flow_epoch) {
        const int32_t slot = choose(self->routes, destination, usable, flow);
        *known = (known_flow){.flow = flow, .epoch = self->flow_epoch, .slot = slot};
    }
    return known->slot;
}

/* The run of a frame that may be relayed, its hop budget spent; -1: the core's. */
static inline int32_t
run_of(engine *self, uint8_t *header, uint64_t usable)
{
    int32_t slot;

    if (header[KIND_AT] <= LINK_LOCAL_LAST || header[FLAGS_AT] & (FLAG_CAREFUL | FLAG_RECORD)
        || header[HOP_BUDGET_AT] == 0)
        return -1;
    slot = slot_of_flow(self, header, usable);
    if (slot < 0)
        return -1;
    header[HOP_BUDGET_AT]--;
    return run_of_class(slot, header[PRIORITY_AT]);
}

/* Of the beginning of a frame all that decides its fate, but the hop budget. */
typedef struct {
    uint64_t first; /* length, prefix, kind */
    uint64_t second; /* flags, priority, destination, a part of the source */
    uint32_t third;
} frame_head;

static inline frame_head
head_of(const uint8_t *bytes)
{
    /* As bytes, so that it holds for either byte order: all but the hop budget. */
    static const uint8_t kept[8] = {255, 255, 0, 255, 255, 255, 255, 255};
    uint64_t mask;
    frame_head head;

    memcpy(&mask, kept, sizeof mask);
    memcpy(&head.first, bytes, sizeof head.first);
    memcpy(&head.second, bytes + 8, sizeof head.second);
    memcpy(&head.third, bytes + 15, sizeof head.third);
    head.second &= mask;
    return head;
}

/* How far frames with the same head follow, after one of `whole` bytes at `at` that is relayed; their hop
 * budgets are spent. That they have one length is guessed and then seen, so the processor need not wait
 * for a length to know where the next one lies. */
static inline size_t
skip_alike(uint8_t *bytes, size_t at, size_t end, size_t whole)
{
    const frame_head wanted = head_of(bytes + at);

    for (at += whole; end - at >= whole; at += whole) {
        const frame_head head = head_of(bytes + at);
        uint8_t *hop_budget = bytes + at + LENGTH_BYTES + BODY_PREFIX_BYTES + HOP_BUDGET_AT;
        if (((head.first ^ wanted.first) | (head.second ^ wanted.second)
             | (head.third ^ wanted.third)) != 0
            || *hop_budget == 0)
            break;
        --*hop_budget;
    }
    return at;
}

/* What is remembered of flows is of this link, and of the snapshot and the links as they are. */
static inline void
own_flows(engine *self, const bmgd_link *link)
{
    if (self->flows_of == link->number && self->flows_from == link->came_from)
        return;
    self->flows_of = link->number;
    self->flows_from = link->came_from;
    self->flow_epoch++;
}

/* Find the frames; decide where each one goes, its hop budget spent if it goes on. */
static inline void
walk_chunk(engine *self, const bmgd_link *link, uint8_t *bytes, size_t end, walked *found)
{
    const snapshot *routes = self->routes;
    const uint64_t usable = routes == NULL ? 0 : jumps_without(routes, link->came_from);
    chunk_piece piece = {.run = -1, .next = -1};
    uint32_t frames = 0;
    size_t at = 0;

    own_flows(self, link);
    while (end - at >= LENGTH_BYTES) {
        const size_t length = big_endian(bytes + at);
        uint8_t *body = bytes + at + LENGTH_BYTES;
        size_t behind = at + LENGTH_BYTES + length;
        int32_t run;

        if (length < BODY_BYTES_MIN || length > FRAME_BYTES_MAX) {
            found->error = BAD_LENGTH;
            break;
        }
        if (end < behind)
            break;
        found->error = malformed(body);
        if (found->error != NULL)
            break;
        run = routes == NULL ? -1 : run_of(self, body + BODY_PREFIX_BYTES, usable);
        if (run != piece.run) {
            join_run(self, found, &piece, frames);
            piece = (chunk_piece){.at = (uint32_t)at, .run = run, .next = -1};
            frames = 0;
        }
        if (run >= 0)
            behind = skip_alike(bytes, at, end, LENGTH_BYTES + length);
        frames += (uint32_t)((behind - at) / (LENGTH_BYTES + length));
        at = behind;
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
put_run(engine *self, bmgd_link *to, const uint8_t *bytes, const chunk_run *run, ring *queue)
{
    const int is_bulk = queue == &to->out.bulk;

    self->relayed_runs++;
    self->relayed_frames += run->frames;
    self->relayed_bytes += (int64_t)run->bytes;
    if (to->fd >= 0 && is_bulk && run->first == run->last && run->bytes >= DIRECT_BYTES_MIN
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

/* Relay a run, drop it, or give it back; whether it is bulk that waits behind a full socket. */
static inline int
relay_run(engine *self, bmgd_link *link, const uint8_t *bytes, int32_t number)
{
    static const size_t bounds[] = {[URGENT_RUN] = URGENT_BYTES_MAX,
                                    [HIGH_RUN] = HIGH_BYTES_MAX,
                                    [BULK_RUN] = BULK_BYTES_MAX};
    const chunk_run *run = &self->runs[number];
    bmgd_link *to = self->by_slot[number / RUNS_PER_LINK];
    const int class = number % RUNS_PER_LINK;
    ring *queue;
    int has_room;

    mark_heard(self, link);
    if (to == NULL || to->state != UP) {
        return_run(self, link, bytes, run);
        return 0;
    }
    queue = class == URGENT_RUN ? &to->out.control : class == HIGH_RUN ? &to->out.high : &to->out.bulk;
    has_room = queue->length + run->bytes <= bounds[class];
    if (has_room)
        put_run(self, to, bytes, run, queue);
    else if (class == URGENT_RUN)
        self->dropped_urgent_frames += run->frames;
    else
        self->dropped_bulk_frames += run->frames;
    look_at_backlog(self, to, !has_room);
    return class == BULK_RUN && to->is_blocked && to->out.bulk.length > BACKLOG_HIGH_BYTES;
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
    if (absorb_heartbeat(self, link, body, length)) {
        self->absorbed_frames++;
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
    self->is_stuck = found.run_count > 0 && found.first_for_core < 0;
    for (int32_t i = 0; i < found.run_count; i++) {
        self->is_stuck &= relay_run(self, link, bytes, self->order[i]);
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
        if (self->is_stuck && link->state == UP)
            defer(self, link);
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
    const int64_t number = link->number;
    const size_t count = read_link(self, link);

    *received += count;
    return count == READ_BYTES && (link = find_link(self, number)) != NULL && !link->is_deferred;
}

/* What epoll tells. Where a deferral is over, what it kept is told with the rest. */
static inline int
wait_ready(engine *self, struct epoll_event *events)
{
    int ready = epoll_wait(self->epoll, events, EVENTS_MAX, 0);

    for (int i = 0; i < ready; i++) {
        if (events[i].data.u64 == 0) {
            uint64_t times;
            if (read(self->timer, &times, sizeof times) > 0)
                resume_all(self);
            return epoll_wait(self->epoll, events, EVENTS_MAX, 0);
        }
    }
    return ready;
}

/* Write where there is room again: all of them in every poll, however much there is to read. */
static inline void
serve_writing(engine *self, const struct epoll_event *events, int ready)
{
    for (int i = 0; i < ready; i++) {
        bmgd_link *link = find_link(self, (int64_t)events[i].data.u64);
        if (link == NULL || !(events[i].events & EPOLLOUT || link->state == LEFT))
            continue;
        if (link->is_blocked)
            end_block(link);
        resume_all(self);
        write_link(self, link, NULL, 0);
    }
}

/* Move those to the front whose turn it is: they were not read since all that were ready had a turn.
 * Epoll tells the same links in the same order again. How many they are. */
static inline int
sort_by_turn(const engine *self, struct epoll_event *events, int ready)
{
    int due = 0;

    for (int i = 0; i < ready; i++) {
        const bmgd_link *link = find_link(self, (int64_t)events[i].data.u64);
        if (link != NULL && link->turn != self->turn) {
            const struct epoll_event event = events[i];
            events[i] = events[due];
            events[due++] = event;
        }
    }
    return due;
}

/* Read what is ready, in rounds: where one poll cannot read all, none has a second turn before the others
 * had one. What was relayed is written at the end: one write for what several reads gave. */
static inline void
serve_sockets(engine *self)
{
    struct epoll_event events[EVENTS_MAX];
    const int ready = wait_ready(self, events);
    int64_t full[EVENTS_MAX];
    size_t received = 0;
    int count = 0, due;

    serve_writing(self, events, ready);
    due = sort_by_turn(self, events, ready);
    for (int i = 0; i < ready && received < ROUND_BYTES_MAX; i++) {
        bmgd_link *link = find_link(self, (int64_t)events[i].data.u64);
        if (i == due)
            self->turn++;
        if (link == NULL || link->state == LEFT
            || !(events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
            continue;
        link->turn = self->turn;
        if (serve_reading(self, link, &received))
            full[count++] = (int64_t)events[i].data.u64;
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
