/* An engine's sockets: one epoll instance, reading, writing. Nothing here needs the GIL.
 *
 * Level-triggered: EPOLLIN except in LEFT, EPOLLOUT only while a socket takes nothing. A write that fails
 * ends nothing at once: what the other end said last (its goodbye, perhaps) still waits to be read.
 */
#ifndef BMGD_ENGINE_SOCKETS_H
#define BMGD_ENGINE_SOCKETS_H

#include <sys/socket.h>

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

    event.events = (link->state == LEFT ? 0 : (uint32_t)EPOLLIN)
                   | (link->is_blocked && !link->broken ? (uint32_t)EPOLLOUT : 0);
    if (event.events == link->watched)
        return;
    if (epoll_ctl(self->epoll, EPOLL_CTL_MOD, link->fd, &event) < 0)
        break_link(self, link, errno);
    else
        link->watched = event.events;
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
        link->is_blocked = written < queued + extra_bytes;
    }
    self->sent_bytes += (int64_t)written;
    of_queued = written < queued ? written : queued;
    if (outbox_advance(&link->out, of_queued) < 0)
        self->no_memory = 1;
    if (written - of_queued < extra_bytes
        && outbox_keep_extra(&link->out, extra, extra_bytes, written - of_queued) < 0)
        self->no_memory = 1;
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
