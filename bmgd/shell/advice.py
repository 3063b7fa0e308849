"""The next step of an operator after a refusal, for each reason that does not pass by itself."""

from __future__ import annotations

from bmgd.config import Config
from bmgd.core.effects import Observed


def advice_on(refusal: str, config: Config) -> str:
    """What to compare or change on a node that others refuse; "" where waiting is all.

    Args:
        refusal: the reason as `bmgd.wire.hello.Refusal.text` has it.
        config: what the refused node was told.
    """
    match refusal:
        case "wrong size":
            return f"--size {config.size} here is not the number of founders there"
        case "wrong peers":
            return f"--peers {config.peers.text!r} here is not the list there"
        case "wrong cluster":
            return f"--cluster {config.cluster!r} here is not the name there"
        case "wrong secret" if not config.secrets:
            return "this node has no secret: give it the cluster's with --secret-file"
        case "wrong secret":
            return "the secret of --secret-file here is not the one there, or there is none there"
        case "wrong version" | "unknown extension":
            return "the two daemons speak different versions: install the same bmgd on both"
        case "wrong tls":
            return "one of the two daemons has --tls-cert, the other has not"
        case "wrong certificate":
            return "compare --tls-ca of both, and dates and names of the certificates"
        case "wrong id" if config.join and config.id >= 0:
            return f"--id {config.id} is alive there, or no id there: give none to get a new one"
        case "wrong id":
            return "another daemon listens at that address: compare --id and --peers of both"
    return ""


def with_advice(observed: Observed, config: Config) -> Observed:
    """The same observation, its detail followed by what to do about it."""
    if observed.event == "rejected":
        advice = advice_on(observed.detail, config)
    elif observed.event == "not joined":
        advice = advice_on(observed.detail.rpartition(": ")[2], config)
    else:
        return observed
    if not advice:
        return observed
    detail = f"{observed.detail}: {advice}"
    return Observed(observed.event, observed.peer, observed.incarnation, detail)
