"""What a joiner's id that has left is worth in the digest: by its id alone, and quickly for a whole run.

With H a hash of a number, the id i counts H(i + 64) - H(i), modulo 2**128. Of a run of ids only the ends
remain in each of the 64 buckets, so its parts of the digest cost 128 hashes, however long it is.
"""

from __future__ import annotations

import hashlib
import struct

from bmgd.wire.link_messages import BUCKETS

DIGEST_MODULUS = 2**128
_NUMBER = struct.Struct(">4sQ")


def _hash_of(number: int) -> int:
    packed = _NUMBER.pack(b"left", number)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=16).digest(), "big")


def retired_hash(node_id: int) -> int:
    """The part of one id in the digest; it is in the bucket ``node_id % 64``."""
    return (_hash_of(node_id + BUCKETS) - _hash_of(node_id)) % DIGEST_MODULUS


def retired_sums(first: int, last: int) -> list[int]:
    """The parts of the ids first..last in each bucket: the sums of their `retired_hash`.

    O(min(64, last - first)) hashes.
    """
    sums = [0] * BUCKETS
    for low in range(first, min(first + BUCKETS, last + 1)):
        # The lowest id of its bucket in the run, and the lowest one behind the run.
        behind = low + ((last - low) // BUCKETS + 1) * BUCKETS
        sums[low % BUCKETS] = (_hash_of(behind) - _hash_of(low)) % DIGEST_MODULUS
    return sums
