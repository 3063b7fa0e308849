/* An engine driven by any input: sockets, fed links, frames and closes, for a coverage-guided fuzzer.
 *
 * Input: commands of one byte with what belongs to them. Whatever they are, nothing is read or written
 * out of bounds (the sanitizers look), no call fails, what comes out of a link are whole frames, and
 * counters agree. docs/fuzzing.md has the rest.
 */

#define PY_SSIZE_T_CLEAN
#include "python_side.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINKS = 8, STEPS_MAX = 96, FRAME_MIN = 39, FRAME_MAX = 83968 + 4, SOCKET_BYTES = 2048 };
enum { NO_SUCH_LINK = 3, RAW_KIND = 0, KINDS = 4, GOODBYE_FRAME = 0x07 };

/* The other end of a link, and how far what comes out of it is a frame. */
typedef struct {
    int is_open;
    int fd; /* the other end's, -1 for a link that is fed */
    size_t head_bytes;
    uint8_t head[4];
    size_t left; /* of the frame that is coming */
} other_end;

static PyObject *snapshot_type, *engine_type;
static other_end ends[LINKS];
static int first_link;
static uint8_t came[1 << 18];
static uint8_t made[FRAME_MAX];

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    start_python(&snapshot_type, &engine_type);
    return 0;
}

/* Bytes came out of a link: they must be whole frames, the last one perhaps not at its end yet. */
static void
check_stream(other_end *end, const uint8_t *bytes, size_t count)
{
    while (count > 0) {
        size_t some = 1;
        if (end->left == 0) {
            end->head[end->head_bytes++] = *bytes;
            if (end->head_bytes == 4) {
                end->left = (size_t)end->head[0] << 24 | (size_t)end->head[1] << 16
                            | (size_t)end->head[2] << 8 | end->head[3];
                end->head_bytes = 0;
                expect(end->left + 4 >= FRAME_MIN && end->left + 4 <= FRAME_MAX);
            }
        } else {
            some = count < end->left ? count : end->left;
            end->left -= some;
        }
        bytes += some;
        count -= some;
    }
}

/* A frame with a header of the input's making; its bytes lie in `made`. */
static size_t
make_frame(input *from, int kind)
{
    static const size_t sizes[] = {0, 1, 40, 200, 3000, 5000, 30000, 83000};
    const size_t whole = FRAME_MIN + sizes[next_byte(from) % 8];

    memset(made, 0, FRAME_MIN);
    made[0] = (uint8_t)((whole - 4) >> 24);
    made[1] = (uint8_t)((whole - 4) >> 16);
    made[2] = (uint8_t)((whole - 4) >> 8);
    made[3] = (uint8_t)(whole - 4);
    made[4] = 0x92;
    made[5] = 0xc4;
    made[6] = 32;
    /* Most are routed, not careful, and have hops to go: the other fates need one byte each. */
    made[7] = (uint8_t)(kind >= 0 ? kind : 0x40 ^ next_byte(from));
    made[8] = next_byte(from) & 3;
    made[9] = (next_byte(from) & 1) ^ 1;
    made[10] = (uint8_t)~next_byte(from);
    made[14] = (next_byte(from) + 2) % 34;
    made[18] = next_byte(from) % 34;
    return whole;
}

/* One to four frames, alike or not. */
static PyObject *
make_frames(input *from, int kind)
{
    const int count = 1 + next_byte(from) % 4;
    PyObject *frames = PyBytes_FromStringAndSize("", 0);

    for (int i = 0; i < count && frames != NULL; i++) {
        const size_t whole = make_frame(from, kind);
        for (int again = next_byte(from) % 3; again >= 0 && frames != NULL; again--)
            PyBytes_ConcatAndDel(&frames, PyBytes_FromStringAndSize((char *)made, (Py_ssize_t)whole));
    }
    expect(frames != NULL);
    return frames;
}

/* The result of a call that may not fail. */
static PyObject *
sure(PyObject *result)
{
    expect(result != NULL);
    return result;
}

static void
close_end(other_end *end)
{
    if (end->fd >= 0)
        close(end->fd);
    *end = (other_end){.fd = -1};
}

static void
publish(PyObject *engine, input *from)
{
    const uint32_t peers = next_byte(from) | 2;
    const int space = 2 + next_byte(from) % 60, outside = next_byte(from) % 64;
    PyObject *routes = new_snapshot(snapshot_type, space, outside, peers, first_link);

    Py_DECREF(sure(PyObject_CallMethod(engine, "publish", "N", routes)));
}

static void
adopt(PyObject *engine, input *from, int at, int with_socket)
{
    static const int small = SOCKET_BYTES;
    const int peer = next_byte(from) % 3 == 0 ? -1 : at;
    int pair[2] = {-1, -1};

    if (ends[at].is_open)
        return;
    if (with_socket) {
        expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
        setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    }
    ends[at] = (other_end){.is_open = 1, .fd = pair[1]};
    Py_DECREF(sure(PyObject_CallMethod(engine, "adopt", "iii", pair[0], first_link + at, peer)));
}

/* A link that is gone does not come back: an id is never used again. */
static void
look_at_happened(PyObject *happened)
{
    for (Py_ssize_t i = 0; i < PyList_Size(happened); i++) {
        PyObject *item = PyList_GET_ITEM(happened, i);
        const long at = PyLong_AsLong(PyTuple_GetItem(item, 0)) - first_link;
        const long what = PyLong_AsLong(PyTuple_GetItem(item, 1));
        expect(at >= 0 && at < LINKS && what >= 0 && what <= 8);
    }
    Py_DECREF(happened);
}

static void
read_end(other_end *end, size_t limit)
{
    const ssize_t count = end->fd < 0 ? 0 : recv(end->fd, came, limit, MSG_DONTWAIT);

    if (count > 0)
        check_stream(end, came, (size_t)count);
}

static void
write_end(other_end *end, PyObject *bytes)
{
    /* What the socket does not take is cut off, in the middle of a frame. */
    if (end->fd >= 0 && PyBytes_Size(bytes) > 0)
        (void)!send(end->fd, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes),
                    MSG_NOSIGNAL | MSG_DONTWAIT);
    Py_DECREF(bytes);
}

static void
take(PyObject *engine, int at, int limit)
{
    PyObject *bytes;

    if (ends[at].fd >= 0)
        return;
    bytes = sure(PyObject_CallMethod(engine, "take", "ii", first_link + at, limit));
    check_stream(&ends[at], (uint8_t *)PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    Py_DECREF(bytes);
}

static void
put(PyObject *engine, input *from, int at)
{
    const int kind = 1 + next_byte(from) % (KINDS - 1);
    PyObject *result = sure(PyObject_CallMethod(engine, "put", "iNi", first_link + at,
                                                make_frames(from, -1), kind));

    expect(PyLong_AsLong(result) >= 0 && PyLong_AsLong(result) <= NO_SUCH_LINK);
    Py_DECREF(result);
}

/* Frames that come in two pieces, cut after so many 256ths. */
static void
feed_in_two(PyObject *engine, input *from, int link)
{
    PyObject *bytes = make_frames(from, -1);
    const char *at = PyBytes_AS_STRING(bytes);
    const Py_ssize_t length = PyBytes_GET_SIZE(bytes), first = length * next_byte(from) / 256;

    Py_DECREF(sure(PyObject_CallMethod(engine, "feed", "iy#", link, at, first)));
    Py_DECREF(sure(PyObject_CallMethod(engine, "feed", "iy#", link, at + first, length - first)));
    Py_DECREF(bytes);
}

/* Methods without arguments of which only the result's being there is looked at. */
static void
ask(PyObject *engine, int which)
{
    static const char *const names[] = {"heard", "waiting", "totals", "fileno"};

    Py_DECREF(sure(PyObject_CallMethod(engine, names[which % 4], NULL)));
}

static void
step(PyObject *engine, input *from)
{
    const int what = next_byte(from), at = 1 + next_byte(from) % (LINKS - 1);
    const int link = first_link + at;
    other_end *end = &ends[at];

    switch (what % 20) {
    case 0: adopt(engine, from, at, 0); return;
    case 1: adopt(engine, from, at, 1); return;
    case 2: publish(engine, from); return;
    case 3:
        Py_DECREF(sure(PyObject_CallMethod(engine, "feed", "iN", link, next_bytes(from, next_byte(from)))));
        return;
    case 4: feed_in_two(engine, from, link); return;
    case 5:
        Py_DECREF(sure(PyObject_CallMethod(engine, "feed", "iN", link, make_frames(from, -1))));
        return;
    case 6: put(engine, from, at); return;
    case 7: take(engine, at, next_byte(from) * (what & 32 ? 1 : 1000)); return;
    case 8: {
        const size_t whole = make_frame(from, GOODBYE_FRAME);
        Py_DECREF(sure(PyObject_CallMethod(engine, "shut", "iy#", link, made, (Py_ssize_t)whole)));
        return;
    }
    case 9:
        Py_DECREF(sure(PyObject_CallMethod(engine, "close", "i", link)));
        return;
    case 10:
        Py_DECREF(sure(PyObject_CallMethod(engine, "finish", "ii", link, what & 32 ? ECONNRESET : 0)));
        return;
    case 11: case 12: case 13:
        look_at_happened(sure(PyObject_CallMethod(engine, "poll", NULL)));
        Py_DECREF(sure(PyObject_CallMethod(engine, "flush", NULL)));
        return;
    case 14: {
        const size_t whole = make_frame(from, -1);
        Py_DECREF(sure(PyObject_CallMethod(engine, "know", "y#", made + 4, (Py_ssize_t)(whole - 4))));
        return;
    }
    case 15: write_end(end, next_bytes(from, next_byte(from))); return;
    case 16: write_end(end, make_frames(from, -1)); return;
    case 17: read_end(end, what & 32 ? sizeof came : 1 + (size_t)next_byte(from) * 20); return;
    case 18:
        if (end->fd >= 0)
            shutdown(end->fd, what & 32 ? SHUT_RDWR : SHUT_WR);
        return;
    default:
        Py_DECREF(sure(PyObject_CallMethod(engine, "promote", "ii", link, next_byte(from) % 34)));
        Py_DECREF(sure(PyObject_CallMethod(engine, "backlog", "i", link)));
        ask(engine, what / 20);
    }
}

static long long
total(PyObject *totals, const char *name)
{
    PyObject *number = PyDict_GetItemString(totals, name);

    expect(number != NULL && PyLong_AsLongLong(number) >= 0);
    return PyLong_AsLongLong(number);
}

/* No more is passed on than came, and frames have their least length. */
static void
check_totals(PyObject *engine)
{
    PyObject *totals = sure(PyObject_CallMethod(engine, "totals", NULL));
    const long long frames = total(totals, "relayed_frames"), bytes = total(totals, "relayed_bytes");
    const long long dropped =
        total(totals, "dropped_bulk_frames") + total(totals, "dropped_urgent_frames");

    expect(bytes <= total(totals, "received_bytes") && frames * FRAME_MIN <= bytes);
    expect(total(totals, "relayed_runs") <= frames && dropped >= 0);
    Py_DECREF(totals);
}

/* All other ends read what there is. */
static void
drain(PyObject *engine)
{
    for (int round = 0; round < 4; round++) {
        look_at_happened(sure(PyObject_CallMethod(engine, "poll", NULL)));
        for (int at = 1; at < LINKS; at++) {
            read_end(&ends[at], sizeof came);
            if (ends[at].is_open)
                take(engine, at, 1 << 20);
        }
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input from = {data, size};
    PyObject *engine = sure(PyObject_CallNoArgs(engine_type));

    first_link = 100;
    for (int at = 0; at < LINKS; at++)
        ends[at] = (other_end){.fd = -1};
    for (int count = 0; from.left > 0 && count < STEPS_MAX; count++)
        step(engine, &from);
    drain(engine);
    check_totals(engine);
    Py_DECREF(engine);
    for (int at = 0; at < LINKS; at++)
        close_end(&ends[at]);
    return 0;
}
