/* A plain relay: what passing bmgd's frames from socket to socket costs in C, and nothing else.
 *
 *   plain PORT
 *
 * It listens on 127.0.0.1. A client's first four bytes are its id, big endian, below 256. From then on
 * what a client sends are frames: a length of four bytes, then a body with the id of the frame's
 * destination. It reads up to 256 KiB, parses every length, and writes each run of frames to the
 * client of that id, blocking. There are no links that fail, no urgency, no bounds and no control
 * frames: this is the floor that a relay is measured against. It ends at end of file on its standard
 * input.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CLIENTS = 256,
    READ_BYTES = 256 * 1024,
    KEPT_BYTES = 128 * 1024,
    FRAME_BYTES_MAX = 84 * 1024,
    LENGTH_BYTES = 4,
    DESTINATION_AT = LENGTH_BYTES + 3 + 4,
    BODY_BYTES_MIN = 35
};

typedef struct {
    int fd;
    size_t kept; /* the beginning of a frame that the last read ended with */
    unsigned char *rest;
} client;

static client clients[CLIENTS];
static int socket_of[CLIENTS]; /* by id; 0 is none */
static unsigned char chunk[KEPT_BYTES + READ_BYTES];
static unsigned char *gathered[CLIENTS]; /* by id, where a chunk has frames for several */
static size_t gathered_bytes[CLIENTS];

static void
fail(const char *what)
{
    perror(what);
    exit(1);
}

static uint32_t
big_endian(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void
write_all(int fd, const unsigned char *bytes, size_t length)
{
    while (length > 0) {
        const ssize_t written = send(fd, bytes, length, MSG_NOSIGNAL);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            fail("send");
        }
        bytes += written;
        length -= (size_t)written;
    }
}

/* Whether all frames are for the first one's destination; `end` becomes the end of the last one. */
static int
parse(const unsigned char *bytes, size_t *end, uint32_t *only)
{
    size_t at = 0;
    int same = 1;

    while (*end - at >= LENGTH_BYTES + BODY_BYTES_MIN) {
        const uint32_t length = big_endian(bytes + at), to = big_endian(bytes + at + DESTINATION_AT);
        if (length < BODY_BYTES_MIN || length > FRAME_BYTES_MAX || to >= CLIENTS
            || socket_of[to] == 0) {
            fprintf(stderr, "a bad frame\n");
            exit(1);
        }
        if (*end - at - LENGTH_BYTES < length)
            break;
        if (at == 0)
            *only = to;
        same &= to == *only;
        at += LENGTH_BYTES + length;
    }
    *end = at;
    return same;
}

static void
gather_and_write(const unsigned char *bytes, size_t end)
{
    size_t at = 0;

    while (at < end) {
        const size_t whole = LENGTH_BYTES + big_endian(bytes + at);
        const uint32_t to = big_endian(bytes + at + DESTINATION_AT);
        memcpy(gathered[to] + gathered_bytes[to], bytes + at, whole);
        gathered_bytes[to] += whole;
        at += whole;
    }
    for (int to = 0; to < CLIENTS; to++) {
        if (gathered_bytes[to] > 0)
            write_all(socket_of[to], gathered[to], gathered_bytes[to]);
        gathered_bytes[to] = 0;
    }
}

/* One read; 0 when the client is gone. */
static int
pass_on(client *from)
{
    size_t all, end;
    uint32_t only = 0;
    ssize_t count;

    memcpy(chunk, from->rest, from->kept);
    count = recv(from->fd, chunk + from->kept, READ_BYTES, 0);
    if (count <= 0)
        return 0;
    all = end = from->kept + (size_t)count;
    if (parse(chunk, &end, &only))
        write_all(socket_of[only], chunk, end);
    else
        gather_and_write(chunk, end);
    from->kept = all - end;
    memcpy(from->rest, chunk + end, from->kept);
    return 1;
}

static void
welcome(int listener, int epoll)
{
    static int number;
    unsigned char id[4];
    const int one = 1, fd = accept(listener, NULL, NULL);
    struct epoll_event event = {.events = EPOLLIN};

    if (fd < 0 || number == CLIENTS || recv(fd, id, sizeof id, MSG_WAITALL) != sizeof id
        || big_endian(id) >= CLIENTS)
        fail("accept");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    event.data.ptr = &clients[number];
    clients[number].fd = fd;
    clients[number].rest = malloc(KEPT_BYTES);
    gathered[id[3]] = malloc(sizeof chunk);
    if (clients[number].rest == NULL || gathered[id[3]] == NULL
        || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        fail("welcome");
    number++;
    socket_of[id[3]] = fd;
    write_all(fd, id, sizeof id);
}

int
main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct epoll_event events[CLIENTS], event = {.events = EPOLLIN};
    const int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0), one = 1;
    char ignored;

    if (argc != 2) {
        fprintf(stderr, "usage: plain PORT\n");
        return 2;
    }
    address.sin_port = htons((uint16_t)atoi(argv[1]));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 64) < 0)
        fail("listen");
    event.data.ptr = &socket_of; /* the listener */
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    event.data.ptr = NULL; /* standard input */
    epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &event);
    for (;;) {
        const int ready = epoll_wait(epoll, events, CLIENTS, -1);
        for (int i = 0; i < ready; i++) {
            client *from = events[i].data.ptr;
            if (from == NULL) {
                if (read(STDIN_FILENO, &ignored, 1) <= 0)
                    return 0;
            } else if ((void *)from == (void *)&socket_of)
                welcome(listener, epoll);
            else if (!pass_on(from)) {
                epoll_ctl(epoll, EPOLL_CTL_DEL, from->fd, NULL);
                close(from->fd);
            }
        }
    }
}
