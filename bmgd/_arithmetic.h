/* How many hops lie between two ranks, and which jumps lead there; no Python.
 *
 * bmgd/topology/distance.py is the same in Python, with the reasons. Each extension that includes
 * this has its own copy, and calls `choose_arithmetic` when it is loaded.
 */
#ifndef BMGD_ARITHMETIC_H
#define BMGD_ARITHMETIC_H

#include <stdint.h>

#define SIZE_MAX_RANKS ((int64_t)1 << 31)

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* A walk of `length` ranks in the direction of `sign` that takes `weight` jumps. */
typedef struct {
    int64_t length;
    int weight;
    int sign;
} walk;

ALWAYS_INLINE int
naf_weight(uint64_t x)
{
    return __builtin_popcountll(x ^ (3 * x));
}

static inline int
top_exponent(int64_t n)
{
    return 63 - __builtin_clzll((unsigned long long)n);
}

/* The first lightest walk of 0 < d < n; see `_lightest` in distance.py. */
ALWAYS_INLINE walk
lightest_inline(int64_t n, int64_t d)
{
    const int top = top_exponent(n);
    const int64_t below_top = ((int64_t)1 << top) - 1;
    int64_t ahead = d, behind = n - d;
    int64_t shorter = ahead < behind ? ahead : behind;
    int64_t best_length = 0;
    int best = INT32_MAX, best_sign = 1;

    do {
        int weight = (int)(ahead >> top) + naf_weight((uint64_t)(ahead & below_top));
        int other = (int)(behind >> top) + naf_weight((uint64_t)(behind & below_top));
        best_sign = weight < best ? 1 : best_sign;
        best_length = weight < best ? ahead : best_length;
        best = weight < best ? weight : best;
        best_sign = other < best ? -1 : best_sign;
        best_length = other < best ? behind : best_length;
        best = other < best ? other : best;
        ahead += n;
        behind += n;
        shorter += n;
        /* Where n is a power of two, another loop only adds to the top. */
    } while (below_top != n - 1 && shorter >> top < best);
    return (walk){best_length, best, best_sign};
}

/* The jump that `_fold` in distance.py keeps of those that lead to the same neighbor. */
ALWAYS_INLINE int64_t
canonical(int64_t n, int64_t jump)
{
    const int64_t top = (int64_t)1 << top_exponent(n);
    const int64_t rest = n - top;

    if (rest == 0)
        return jump == -(top >> 1) ? -jump : jump;
    if ((rest & (rest - 1)) == 0)
        return jump == top ? -rest : jump == -top ? rest : jump;
    return jump;
}

ALWAYS_INLINE int64_t
first_hop_inline(int64_t n, int64_t d)
{
    const int64_t top = (int64_t)1 << top_exponent(n);
    const walk best = lightest_inline(n, d);
    const int64_t rest = best.length & (top - 1);
    const int64_t low = rest & -rest;
    const int64_t digit = rest == 0 ? top : rest & (low << 1) ? -low : low;

    return canonical(n, best.sign * digit);
}

/* The bits of `others` that follow a head, or another such bit, two places below it. */
ALWAYS_INLINE uint64_t
chained(uint64_t heads, uint64_t others)
{
    uint64_t turned = (heads >> 2) & others, run = others;

    for (int shift = 2; shift <= 16; shift *= 2) {
        turned |= run & (turned >> shift);
        run &= run >> shift;
    }
    return turned;
}

/* Every jump that starts a shortest path: bit i is +2^i, bit 32 + i is -2^i. 0 < d < n. */
ALWAYS_INLINE uint64_t
optimal_jumps_inline(int64_t n, int64_t d)
{
    const int exponent = top_exponent(n);
    const uint64_t top = (uint64_t)1 << exponent;
    const int64_t rest_of_n = n - (int64_t)top;
    const int best = lightest_inline(n, d).weight;
    uint64_t masks[2] = {0, 0}; /* forward, backward */
    int64_t lengths[2] = {d, n - d};

    while ((lengths[0] < lengths[1] ? lengths[0] : lengths[1]) >> exponent <= best) {
        for (int side = 0; side < 2; side++) {
            const uint64_t loops = (uint64_t)lengths[side] >> exponent;
            const uint64_t x = (uint64_t)lengths[side] & (top - 1);
            if ((int)loops + naf_weight(x) == best) {
                const uint64_t plus = ((3 * x) & ~x) >> 1, minus = (x & ~(3 * x)) >> 1;
                const uint64_t up = chained(plus, minus), down = chained(minus, plus);
                masks[side] |= plus | up | up << 1 | (loops ? top : 0);
                masks[!side] |= minus | down | down << 1;
            }
            lengths[side] += n;
        }
    }
    if (rest_of_n == 0) {
        const uint64_t half = top >> 1;
        masks[0] |= masks[1] & half;
        masks[1] &= ~half;
    } else if ((rest_of_n & (rest_of_n - 1)) == 0) {
        const uint64_t forward = masks[0];
        masks[0] = (forward & ~top) | (masks[1] & top ? (uint64_t)rest_of_n : 0);
        masks[1] = (masks[1] & ~top) | (forward & top ? (uint64_t)rest_of_n : 0);
    }
    return masks[0] | masks[1] << 32;
}

/* The same code once for every machine and once with the instruction that counts bits. */
typedef struct {
    walk (*lightest)(int64_t n, int64_t d);
    int64_t (*first_hop)(int64_t n, int64_t d);
    uint64_t (*optimal_jumps)(int64_t n, int64_t d);
} arithmetic;

#define ARITHMETIC(name, attribute)                                                             \
    attribute static walk lightest_##name(int64_t n, int64_t d)                                 \
    {                                                                                           \
        return lightest_inline(n, d);                                                           \
    }                                                                                           \
    attribute static int64_t first_hop_##name(int64_t n, int64_t d)                             \
    {                                                                                           \
        return first_hop_inline(n, d);                                                          \
    }                                                                                           \
    attribute static uint64_t optimal_jumps_##name(int64_t n, int64_t d)                        \
    {                                                                                           \
        return optimal_jumps_inline(n, d);                                                      \
    }                                                                                           \
    static const arithmetic name = {lightest_##name, first_hop_##name, optimal_jumps_##name};

ARITHMETIC(portable, )
#if defined(__x86_64__)
ARITHMETIC(with_popcnt, __attribute__((target("popcnt"))))
#endif

/* Written once, before any other use, always with the same value. */
static const arithmetic *route = &portable;

static inline void
choose_arithmetic(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("popcnt"))
        route = &with_popcnt;
#endif
}

#endif
