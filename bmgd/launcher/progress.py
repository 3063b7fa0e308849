"""How far a request to the launcher is: to start a daemon again, or to add some.

Each is carried out in steps: look at it again whenever something has happened or its time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bmgd.errors import ConfigError, LaunchError
from bmgd.launcher.daemons import START_S, Daemons, State, how_ended
from bmgd.launcher.orders import NOT_FORKED
from bmgd.launcher.plan import LAUNCH_MAX
from bmgd.launcher.requests import Request

REAP_S: Final = 2.0
"""How long a restart waits for the former process to be gone."""


def look_again_s(request: Request) -> float:
    """When its time is over."""
    return request.asked_s + (START_S if request.spawned else REAP_S)


def restart(
    daemons: Daemons, request: Request, now_s: float, write: Callable[[], None]
) -> dict[str, Any] | None:
    """Start a daemon again that has ended, and wait until it is a member.

    Args:
        daemons: those of the launch.
        request: what was asked; notes how far it is.
        now_s: now.
        write: writes cluster.json, before the answer says what is in it.

    Returns:
        The answer, or None as long as there is none.
    """
    node_id = next((daemons.id_of(n) for n in request.joiners), request.node_id)
    daemon = daemons.by_id.get(node_id)
    if daemon is None:
        return {"error": f"id {request.node_id} is out of range 0..{max(daemons.by_id)}"}
    if not request.spawned:
        if daemon.state is State.ENDED:
            try:
                daemons.renew_secrets()
            except ConfigError as error:
                return {"error": str(error)}
            request.spawned, request.joiners = True, (daemon.number,)
            daemons.spawn((request.node_id,))
        elif now_s >= request.asked_s + REAP_S:
            return {"error": f"node {request.node_id} runs already (pid {daemon.pid})"}
        return None
    if daemon.state is State.READY and daemon.pid is not None:
        write()
        if node_id != request.node_id:
            return {"error": f"node {request.node_id} was given another id: {node_id}"}
        return {"pid": daemon.pid, "seconds": now_s - daemon.spawned_s}
    if daemon.state is State.ENDED:
        code, log = daemon.ended_with, daemons.plan.run_dir.log(node_id)
        where = "" if code < 0 or code == NOT_FORKED else f"; {log} says why"
        return {"error": f"node {request.node_id} {how_ended(code)}{where}"}
    if now_s >= request.asked_s + START_S:
        return {"error": f"node {request.node_id} has not joined within {START_S:.0f} s"}
    return None


def grow(
    daemons: Daemons, request: Request, now_s: float, write: Callable[[], None]
) -> dict[str, Any] | None:
    """Add daemons, and wait until all are members.

    Args:
        daemons: those of the launch.
        request: what was asked; notes how far it is.
        now_s: now.
        write: writes cluster.json, before the answer says what is in it.

    Returns:
        The answer, or None as long as there is none.
    """
    if not request.spawned:
        if len(daemons.by_id) + request.grow > LAUNCH_MAX:
            return {"error": f"a launch has at most {LAUNCH_MAX} daemons"}
        try:
            request.joiners = daemons.add_joiners(request.grow)
        except (LaunchError, ConfigError) as error:
            return {"error": str(error)}
        except OSError as error:
            return {"error": f"cannot look for free ports: {error.strerror}"}
        request.spawned = True
        return None
    ids = [daemons.id_of(number) for number in request.joiners]
    joiners = [daemons.by_id[node_id] for node_id in ids]
    if all(joiner.state is not State.STARTING and joiner.known for joiner in joiners):
        lost = [i for i in ids if daemons.by_id[i].state is State.ENDED]
        for number in (i for i in lost if i < 0):
            del daemons.by_id[number]
        if daemons.changed:
            write()
        if lost:
            log = daemons.plan.run_dir.log(lost[0])
            return {"error": f"{len(lost)} of {request.grow} joiners ended; {log} says why"}
        return {"ids": sorted(ids), "seconds": now_s - request.asked_s}
    if now_s >= request.asked_s + START_S:
        return {"error": f"not all joiners are members within {START_S:.0f} s"}
    return None
