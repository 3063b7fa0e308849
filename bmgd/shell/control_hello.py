"""The first request of a program, `hello`: which version and which features both sides use.

Without it a connection is one of version 1, and a program may only hope that a verb is known. The
contract is docs/control-protocol.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bmgd.errors import RequestError, VersionError
from bmgd.version import VERSION
from bmgd.wire.control import FEATURES, VERSIONS

VERSIONS_ASKED_MAX: Final = 16
FEATURES_ASKED_MAX: Final = 64
FEATURE_BYTES_MAX: Final = 64
_VERSION_MAX: Final = 2**32 - 1


def answer_hello(params: Mapping[str, Any]) -> dict[str, object]:
    """Choose the highest version and all features that both sides know.

    Args:
        params: ``{"versions": [int, …], "features": [str, …]}``; features that are not known are ignored.

    Returns:
        ``{"version": int, "features": [str, …], "daemon": str}``, the features sorted.

    Raises:
        RequestError: the parameters are not such lists.
        VersionError: there is no version that both know.
    """
    if params.keys() != {"versions", "features"}:
        raise RequestError("wrong parameters: needed are versions, features")
    versions, features = params["versions"], params["features"]
    if not _is_list(versions, int, VERSIONS_ASKED_MAX) or not versions:
        raise RequestError(f"versions are a list of 1 to {VERSIONS_ASKED_MAX} integers")
    if not all(0 < version <= _VERSION_MAX for version in versions):
        raise RequestError(f"a version is in 1..{_VERSION_MAX}")
    if not _is_list(features, str, FEATURES_ASKED_MAX) or any(
        len(name.encode()) > FEATURE_BYTES_MAX for name in features
    ):
        raise RequestError(
            f"features are a list of at most {FEATURES_ASKED_MAX} texts of {FEATURE_BYTES_MAX} bytes"
        )
    common = VERSIONS & set(versions)
    if not common:
        raise VersionError(
            f"no common version of the control protocol: this daemon has {_numbers(VERSIONS)},"
            f" the program {_numbers(versions)}"
        )
    return {
        "version": max(common),
        "features": sorted(FEATURES & set(features)),
        "daemon": f"bmgd {VERSION}",
    }


def _is_list(value: object, kind: type, most: int) -> bool:
    return type(value) is list and len(value) <= most and all(type(each) is kind for each in value)


def _numbers(versions: object) -> str:
    assert isinstance(versions, list | frozenset)
    return ", ".join(map(str, sorted(versions)))
