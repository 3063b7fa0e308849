/* An engine's sockets: one epoll instance, reading, writing. Nothing here needs the GIL.
 *
 * Level-triggered: EPOLLIN except in LEFT and while deferred, EPOLLOUT only while a socket takes nothing. A write that fails
 * ends nothing at once: what the other end said last (its goodbye, perhaps) still waits to be read.
 */
#ifndef BMGD_ENGINE_SOCKETS_H
#define BMGD_ENGINE_SOCKETS_H

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>

#include "_engine_links.h"

enum { EVENTS_MAX = 64, WRITE_FLAGS = MSG_NOSIGNAL | MSG_DONTWAIT };

/* ---- watching ----------------------------------------------------------------------------- */

static inline void
break_link(engine *self, bmgd_link *link, int number)
{
    if (!link->broken)
        self->broken_count++;
    link->broken = number;
}

/* Have epoll tell what the link's state needs. */
static inline void
watch(engine *self, bmgd_link *link)
{
    struct epoll_event event = {.data.u64 = (uint64_t)link->number};

    event.events = (link->state == LEFT || link->is_deferred ? 0 : (uint32_t)EPOLLIN)
                   | (link->is_blocked && !link->broken ? (uint32_t)EPOLLOUT : 0);
    if (event.events == link->watched)
        return;
    if (epoll_ctl(self->epoll, EPOLL_CTL_MOD, link->fd, &event) < 0)
        break_link(self, link, errno);
    else
        link->watched = event.events;
}

/* ---- the kernel's unsent backlog ------------------------------------------------------------ */

/* What is written and not sent cannot be overtaken, so it is kept short (TCP_NOTSENT_LOWAT): in time. A
 * socket that was full can be written again when half of it went out. Where that took less than a
 * millisecond the link is fast, and gets twice as much; so that it does not stand still while this
 * process does something else, and that one write takes much. */
enum {
    UNSENT_BYTES_MAX = 4 * 1024 * 1024,
    SHORT_BLOCK_NS = 1000 * 1000,
    LONG_BLOCK_NS = 4 * SHORT_BLOCK_NS
};

static inline int64_t
monotonic_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Ask how much may be unsent; nothing for what is no TCP, or has no such bound. */
static inline void
learn_unsent(bmgd_link *link)
{
    int bytes = 0;
    socklen_t size = sizeof bytes;

    if (getsockopt(link->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, &size) == 0 && bytes > 0
        && bytes <= UNSENT_BYTES_MAX)
        link->unsent_bytes = link->unsent_bytes_min = bytes;
}

static inline void
allow_unsent(bmgd_link *link, int bytes)
{
    if (setsockopt(link->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes) == 0)
        link->unsent_bytes = bytes;
}

static inline void
begin_block(bmgd_link *link)
{
    link->is_blocked = 1;
    if (link->unsent_bytes > 0)
        link->blocked_ns = monotonic_ns();
}

static inline void
end_block(bmgd_link *link)
{
    link->is_blocked = 0;
    if (link->unsent_bytes > 0) {
        const int64_t took_ns = monotonic_ns() - link->blocked_ns;
        if (took_ns < SHORT_BLOCK_NS && 2 * link->unsent_bytes <= UNSENT_BYTES_MAX)
            allow_unsent(link, 2 * link->unsent_bytes);
        else if (took_ns > LONG_BLOCK_NS && link->unsent_bytes >= 2 * link->unsent_bytes_min)
            allow_unsent(link, link->unsent_bytes / 2);
    }
}

/* ---- deferring ---------------------------------------------------------------------------- */

/* A link that gives nothing but bulk for sockets that are full is read again when one of them takes
 * something, at the latest after DEFER_NS. Its bytes wait where they are, uncopied. It is no
 * backpressure: the wait ends by the clock, whatever the others do, so no cycle of waiting can close. */
enum { DEFER_NS = 500 * 1000 };

static inline void
defer(engine *self, bmgd_link *link)
{
    const struct itimerspec limit = {.it_value = {.tv_nsec = DEFER_NS}};
    const size_t before = self->deferred_count;

    if (before == 0 && timerfd_settime(self->timer, 0, &limit, NULL) < 0)
        return;
    add_number(self, &self->deferred, &self->deferred_count, &self->deferred_capacity, link->number);
    if (self->deferred_count == before)
        return;
    link->is_deferred = 1;
    watch(self, link);
}

static inline void
resume_all(engine *self)
{
    for (size_t i = 0; i < self->deferred_count; i++) {
        bmgd_link *link = find_link(self, self->deferred[i]);
        if (link == NULL)
            continue;
        link->is_deferred = 0;
        watch(self, link);
    }
    self->deferred_count = 0;
}

/* ---- writing ------------------------------------------------------------------------------ */

/* Write once; how much, 0 where the socket takes nothing or is broken. */
static inline size_t
write_once(engine *self, bmgd_link *link, const uint8_t *extra, size_t extra_bytes)
{
    struct iovec parts[OUTBOX_PARTS];
    struct msghdr message = {.msg_iov = parts};
    ssize_t written;

    message.msg_iovlen = (size_t)outbox_gather(&link->out, extra, extra_bytes, parts);
    do {
        written = message.msg_iovlen == 1
                      ? send(link->fd, parts[0].iov_base, parts[0].iov_len, WRITE_FLAGS)
                      : sendmsg(link->fd, &message, WRITE_FLAGS);
    } while (written < 0 && errno == EINTR);
    if (written < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
        break_link(self, link, errno);
    return written < 0 ? 0 : (size_t)written;
}

/* Write what waits on a link, and `extra` behind it: bulk frames that are in no queue yet, of which what
 * the socket does not take is queued. The link may be gone afterwards, if it was LEFT. */
static inline void
write_link(engine *self, bmgd_link *link, const uint8_t *extra, size_t extra_bytes)
{
    const size_t queued = outbox_backlog(&link->out);
    size_t written = 0, of_queued;

    if (!link->broken && !link->is_blocked && queued + extra_bytes > 0) {
        written = write_once(self, link, extra, extra_bytes);
        if (written < queued + extra_bytes)
            begin_block(link);
    }
    self->sent_bytes += (int64_t)written;
    of_queued = written < queued ? written : queued;
    if (outbox_advance(&link->out, of_queued, extra_bytes) < 0)
        self->no_memory = 1;
    if (extra_bytes > 0) {
        if (written - of_queued == extra_bytes)
            outbox_spend(&link->out, extra_bytes);
        else if (outbox_keep_extra(&link->out, extra, extra_bytes, written - of_queued) < 0)
            self->no_memory = 1;
        outbox_settle_turn(&link->out, 0);
    }
    if (after_writing(self, link) && shutdown(link->fd, SHUT_WR) < 0)
        break_link(self, link, errno);
    if (!link->gone)
        watch(self, link);
}

/* Write all links into which something was put. */
static inline void
write_waiting(engine *self)
{
    for (size_t i = 0; i < self->unwritten_count; i++) {
        bmgd_link *link = find_link(self, self->unwritten[i]);
        if (link == NULL)
            continue;
        link->is_waiting = 0;
        write_link(self, link, NULL, 0);
    }
    self->unwritten_count = 0;
}

#endif
