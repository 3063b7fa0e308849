/* Distances, jumps and ranks for any input: what must hold between them, for a coverage-guided fuzzer.
 *
 * Input: a size, a distance, then runs of ids outside a layout, and an id. docs/fuzzing.md has the rest.
 */

#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../bmgd/_arithmetic.h"
#include "../../bmgd/_forwarding.h"

enum { RUNS_MAX = 16 };

static void
expect(int holds)
{
    if (!holds)
        abort();
}

static uint32_t
next_u32(const uint8_t **data, size_t *size)
{
    uint8_t bytes[4] = {0};
    const size_t some = *size < sizeof bytes ? *size : sizeof bytes;

    memcpy(bytes, *data, some);
    *data += some;
    *size -= some;
    return big_endian(bytes);
}

/* Every jump named is a first step of a shortest way, and the one that is chosen is among them. */
static void
check_jumps(int64_t n, int64_t d)
{
    const uint64_t jumps = route->optimal_jumps(n, d);
    const int64_t first = route->first_hop(n, d);
    const int hops = route->lightest(n, d).weight;
    int found = 0;

    expect(jumps != 0);
    for (uint64_t left = jumps; left != 0; left &= left - 1) {
        const int bit = __builtin_ctzll(left);
        const int64_t jump = bit < 32 ? (int64_t)1 << bit : -((int64_t)1 << (bit - 32));
        const int64_t rest = (((d - jump) % n) + n) % n;
        expect(rest == 0 ? hops == 1 : route->lightest(n, rest).weight == hops - 1);
        found |= jump == first;
    }
    expect(found);
}

static void
check_id(const snapshot *layout, int64_t id, int has_rank)
{
    const int64_t rank = id < 0 ? -1 : snapshot_rank(layout, id);

    expect(has_rank ? rank >= 0 && rank < layout->layout_size : rank == -1);
    expect(rank < 0 || snapshot_id(layout, rank) == id);
}

/* Ranks and ids are each other's inverse, and ids outside have no rank. */
static void
check_ranks(const uint8_t *data, size_t size)
{
    outside_run runs[RUNS_MAX];
    snapshot layout = {.outside = runs};
    uint32_t behind = 0;
    int64_t id = next_u32(&data, &size) % 64;

    while (size > 0 && layout.outside_runs < RUNS_MAX) {
        const uint32_t length = next_u32(&data, &size) % 1024 + 1;
        const uint32_t gap = next_u32(&data, &size) % 65536 + 1;
        behind += length;
        runs[layout.outside_runs++] = (outside_run){.first = (uint32_t)id, .behind = behind};
        id += length + gap;
    }
    layout.id_space = id + 1;
    layout.layout_size = layout.id_space - behind;
    /* The edges of each run, and their neighbors. */
    for (Py_ssize_t run = 0; run < layout.outside_runs; run++) {
        const int64_t first = runs[run].first;
        const int64_t behind = first + runs[run].behind - outside_before(&layout, run);
        check_id(&layout, first - 1, first > 0);
        check_id(&layout, first, 0);
        check_id(&layout, behind - 1, 0);
        check_id(&layout, behind, 1);
    }
    expect(snapshot_rank(&layout, layout.id_space) == -1);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int64_t n = 2 + next_u32(&data, &size) % (uint32_t)(SIZE_MAX_RANKS - 2);
    const int64_t d = 1 + next_u32(&data, &size) % (n - 1);

    choose_arithmetic();
    check_jumps(n, d);
    /* Small sizes, where loops matter, come too seldom by themselves. */
    check_jumps(2 + n % 300, 1 + d % (1 + n % 300));
    if (size > 0)
        check_ranks(data, size);
    return 0;
}
