"""The consecutive bit elimination: runs of ones become one jump ahead and one back.

7 = 0111 is three jumps, 8 - 1 is two. Take the two lowest consecutive bits, l and 2l, and add the
lower one, l, to both directions: ahead the two bits are carried into 4l or beyond, behind the jump l
appears. Repeat.

**When to stop.** The paper repeats "until there is no consecutive bit left or the result after
adding the values is more than j_m", the longest jump, and leaves open what "the result" is. If it is
the whole distance, so that 71 = 1000111 of n = 100 must not become 72 - 1 as 72 is more than 64, the
average overhead is 3.83 % instead of the 1.28199 % that the paper prints (1.56 % if that step is
still made, as the last one). Read as the jump that the pair l, 2l is carried to, it gives every
printed digit: a pair may be replaced while 4l <= j_m, as beyond that there is no such jump. A longer
run that the same step carries past j_m is still right: 2 * j_m then stands for two jumps of j_m. So
no step makes the form heavier, and what results is the lightest form of the distance without another
loop around the ring: the equivalence class method with l = 0.

Figure 7's state machine does it in one pass from the lowest bit. Its stop, printed as "di = !", has
no output where the number ends within a run; there the carry must still be written, or 6 = 110 would
become 0 - 2.
"""

from __future__ import annotations

from enum import Enum

from bmgd.routing.papers.distances import checked_distance, checked_way
from bmgd.routing.papers.forms import Form, lighter, top_of


def check_11(d: int) -> int:
    """The lower of the two lowest consecutive one bits of d >= 0, as its value; 0 if there is none.

    O(one bits). Source: Routing figure 8.
    """
    previous = -1
    while d:
        low = d & -d
        if previous << 1 == low:
            return previous
        d &= d - 1
        previous = low
    return 0


def eliminated(length: int, top: int, sign: int = 1) -> Form:
    """A walk of some length, in either direction, with its consecutive bits eliminated: the loop.

    Args:
        length: how far the walk goes, from 0; more than once around the ring is possible.
        top: floor(log2 n), so 2**top is the longest jump.
        sign: the direction of the walk.

    Source: Routing §3.2.
    """
    ahead, behind = length, 0
    while (low := check_11(ahead)) and low << 2 <= 1 << top:
        ahead += low
        behind += low
    return Form(ahead, behind, top, sign)


class State(Enum):
    """What the machine has just read: no one, a one, or a run of them. Source: Routing figure 7."""

    OFF = "off"
    FIRST_ONE = "first one"
    CLUSTER = "cluster"


def transformed(length: int, top: int, sign: int = 1) -> Form:
    """The same as `eliminated`, by the state machine over the bits below 2**top.

    state       bit  becomes     output
    ---------   ---  ---------   ------------------------------------------------------
    OFF          0   OFF         the bit stays
    OFF          1   FIRST_ONE   the bit stays
    FIRST_ONE    0   OFF         the bit stays
    FIRST_ONE    1   CLUSTER     this bit and the one before are cleared, the one before is set behind
    CLUSTER      1   CLUSTER     the bit is cleared
    CLUSTER      0   FIRST_ONE   the bit is set: the run's carry, which may begin another run
    CLUSTER     end              2**top is added: the carry again
    """
    ahead, behind, state = length, 0, State.OFF
    for i in range(top):
        bit = 1 << i
        match state, bool(ahead & bit):
            case (State.OFF, is_one):
                state = State.FIRST_ONE if is_one else State.OFF
            case (State.FIRST_ONE, False):
                state = State.OFF
            case (State.FIRST_ONE, True):
                ahead &= ~(bit | bit >> 1)
                behind |= bit >> 1
                state = State.CLUSTER
            case (State.CLUSTER, is_one):
                ahead ^= bit
                state = State.CLUSTER if is_one else State.FIRST_ONE
    if state is State.CLUSTER:
        ahead += 1 << top
    return Form(ahead, behind, top, sign)


def form(n: int, distance: int) -> Form:
    """The lighter of both directions after the elimination, clockwise if they weigh the same.

    Args:
        n: the size of the graph, 2..2**31.
        distance: the destination's rank minus the own one, above -n and below n, not 0.

    Raises:
        GraphError: an argument is out of its range.

    O(log(n)**2), as the loop begins anew from the lowest bit. Source: Routing §3.2.
    """
    d, top = checked_way(n, distance), top_of(n)
    return lighter(eliminated(d, top), eliminated(n - d, top, -1))


def hop_count(n: int, distance: int) -> int:
    """The number of jumps of the `form`, 0 for distance 0; the errors are the same."""
    return form(n, distance).weight if checked_distance(n, distance) else 0


def first_hop(n: int, distance: int) -> int:
    """The longest jump of the `form`, with its sign; the errors are the same."""
    return form(n, distance).jumps[-1]
