"""DEVICE and TARGET: which of the devices of this host, and which profile, does a word mean?"""

from fnmatch import fnmatchcase

from escherlib.errors import UserError
from escherlib.hardware.identify import identify

STACKS = {"cuda": "NVIDIA", "rocm": "AMD"}
SHORTEST_PATTERN = 3  # letters; anything shorter fits half the list
SHOWN = 6


def resolve_device(spec, facts_list, profiles, rules=None):
    """Pick a device of this host. Returns (index, profile id).

    index counts the GPUs of `facts_list` in their order and is None for the CPU; the profile id is None for
    a device without rated values. UserError where the word is unknown, fits several kinds of device, or
    fits nothing on this host.
    """
    word = _word("DEVICE", spec)
    gpus = [facts for facts in facts_list if facts.kind != "cpu"]
    cpu = next((facts for facts in facts_list if facts.kind == "cpu"), None)
    found = [identify(facts, profiles, rules).profile_id for facts in gpus]
    cpu_id = identify(cpu, profiles, rules).profile_id if cpu else None
    if word == "auto":
        return (0, found[0]) if gpus else (None, cpu_id)
    if word in ("cpu", "cpu_generic"):
        return None, cpu_id
    if word in STACKS:
        index = next((i for i, facts in enumerate(gpus) if facts.vendor == STACKS[word]), None)
        if index is None:
            raise UserError(
                f"DEVICE={spec}: no {STACKS[word]} GPU on this host ({_present(facts_list)}); use DEVICE=auto"
            )
        return index, found[index]
    wanted = candidates(word, profiles)
    fitting = [i for i, profile_id in enumerate(found) if profile_id in wanted]
    fitting = fitting or [i for i, facts in enumerate(gpus) if _fits(word, facts.name)]
    kinds = list(dict.fromkeys(found[i] or gpus[i].name for i in fitting))
    if len(kinds) > 1:
        raise UserError(f"DEVICE={spec}: fits several devices of this host; choose one of {', '.join(kinds)}")
    if fitting:
        return fitting[0], found[fitting[0]]
    if cpu_id in wanted:
        return None, cpu_id
    if not wanted:
        raise _unknown("DEVICE", spec, profiles)
    meant = f" ({_listed(wanted)})" if len(wanted) > 1 else ""
    raise UserError(
        f"DEVICE={spec}{meant}: this host has no such device ({_present(facts_list)}); "
        f"connect to a host that has one, or use DEVICE=auto"
    )


def resolve_target(target, profiles, detected=None):
    """Profile id that TARGET means (id, family alias, name pattern); `detected` decides where several fit."""
    word = _word("TARGET", target)
    wanted = candidates(word, profiles)
    if detected in wanted:
        return detected
    if not wanted:
        raise _unknown("TARGET", target, profiles)
    if len(wanted) > 1:
        raise UserError(f"TARGET={target}: means several profiles; choose one of {_listed(wanted)}")
    return wanted[0]


def candidates(word, profiles):
    """Profile ids that a word may mean: the id, else the family (`h100`), else a name pattern."""
    if word in profiles:
        return [word]
    family = [profile_id for profile_id in profiles if profile_id.split("_")[0] == word]
    return family or [
        i for i, profile in profiles.items() if _fits(word, i) or _fits(word, profile.display_name)
    ]


def profile_for(identification, profiles):
    """The Profile of an Identification without what was withheld, or None."""
    if identification.profile_id is None:
        return None
    return profiles[identification.profile_id].without(identification.withheld)


def _fits(word, name):
    """Whether a name pattern (part of the name, or * and ?) fits, blanks and case aside."""
    name, word = " ".join(str(name).casefold().split()), " ".join(word.split())
    if any(mark in word for mark in "*?"):
        return fnmatchcase(name, word)
    return len(word) >= SHORTEST_PATTERN and word in name


def _word(switch, spec):
    word = str(spec or "").strip().casefold()
    if not word:
        raise UserError(
            f"{switch}=: empty; expected a profile id, a family alias, a name pattern, or leave {switch} out"
        )
    return word


def _unknown(switch, spec, profiles):
    words = (
        "auto, cpu, cuda, rocm, a family such as h100, part of a name, or "
        if switch == "DEVICE"
        else "a family, part of a name, or "
    )
    return UserError(
        f"{switch}={str(spec)[:80]}: unknown device; expected {words}one of {', '.join(profiles)}"
    )


def _present(facts_list):
    """`found: CPU AMD EPYC, 2 cores` – what this host has, for messages."""
    shown = []
    for facts in sorted(facts_list, key=lambda facts: facts.kind == "cpu"):
        name = " ".join(facts.name.split()) or "unnamed"
        cores = f", {facts.compute_units} cores" if facts.compute_units else ""
        shown.append(f"CPU {name}{cores}" if facts.kind == "cpu" else name)
    return f"found: {_listed(shown, '; ')}" if shown else "found nothing"


def _listed(names, separator=", "):
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return separator.join(names[:SHOWN]) + more
