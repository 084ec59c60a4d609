"""Which device profile do these facts belong to, and how sure is that?

Order: PCI id, name, architecture with memory and unit count; for CPUs name, then family and model. A fact
that contradicts the profile found makes it null, since a wrong rated value is worse than none. The rules
are data in parameters/devices.yaml.
"""

import math
import re
import unicodedata
from dataclasses import asdict, dataclass

from escherlib.errors import UserError

NAME_LIMIT = 160  # no device has a longer name
VENDOR_BY_PCI = {"1002": "AMD", "10de": "NVIDIA"}
NOTHING = "no rated value"


@dataclass(frozen=True)
class DeviceFacts:
    """What a probe, a driver or a user knows of one device; None is not known.

    memory_gib is what the driver reports in GiB; compute_units counts CU or SM (CPU: usable cores); pci_id is
    vendor:device in hex; partition is a partition or MIG mode that is in force; bdf is a join key and is never
    written out; cpu_family and cpu_model are those of x86, on Arm the implementer and the part.
    """

    name: str = ""
    kind: str | None = None
    vendor: str | None = None
    arch: str | None = None
    memory_gib: float | None = None
    compute_units: int | None = None
    pci_id: str | None = None
    pci_revision: str | None = None
    power_cap_w: float | None = None
    clock_mhz: float | None = None
    partition: str | None = None
    bdf: str | None = None
    cpu_family: int | None = None
    cpu_model: int | None = None
    cpu_flags: frozenset = frozenset()


@dataclass(frozen=True)
class Identification:
    """A profile id or None, the step that decided, remarks, and the groups of fields that do not apply."""

    profile_id: str | None
    how: str
    notes: tuple = ()
    withheld: tuple = ()


def identify(facts, profiles, rules=None):
    """Find the profile of a device.

    `profiles`: id → Profile; `rules`: IdentificationRules (default: those of parameters/).
    """
    if rules is None:
        from escherlib.parameters import load_identification

        rules = load_identification()
    words = name_words(facts.name)
    if facts.kind == "cpu" or (facts.kind is None and _looks_like_cpu(words, rules)):
        return _identify_cpu(facts, words, profiles, rules)
    part = _slice_of(facts, words, rules)
    if part:
        return Identification(
            None, "name" if part.startswith("name") else "partition", (f"{NOTHING}: {part}",)
        )
    known = _match_name(words, facts, rules)
    by_arch = _match_arch(facts, rules) if _says_nothing(words, facts, rules) else None
    steps = [("pci id", _match_pci(facts, rules)), ("name", known), ("architecture", by_arch)]
    how, rule = next(((how, rule) for how, rule in steps if rule is not None), ("nothing", None))
    if how == "pci id" and known is not None and known.profile is None:
        how, rule = "name", known  # PCI id and name disagree, and one of them says: no rated value
    if rule is None or rule.profile is None:
        reason = _reason(facts, words, rules) if rule is None else rule.why
        return Identification(None, how, (f"{NOTHING}: {reason}",))
    against = contradictions(facts, profiles[rule.profile], rule, rules)
    if against:
        return Identification(None, how, (f"{NOTHING}: {how} says {rule.profile}, but {'; '.join(against)}",))
    return Identification(rule.profile, how, _notes(facts, words, how, rule, known, rules), rule.withhold)


def name_words(name):
    """Lower-case words of a device name: marks, NULs and punctuation gone, dots inside a word kept.

    [] for what is no name.
    """
    text = re.sub(r"[\0®™©]", " ", str(name or ""))
    if sum(map(len, text.split())) > NAME_LIMIT:
        return []
    text = unicodedata.normalize("NFKC", text).casefold()
    text = re.sub(r"\((?:r|tm|c)\)", " ", text)
    text = "".join(c if c.isalnum() or c == "." else " " for c in text)
    return [word for word in (word.strip(".") for word in text.split()) if word]


def normal_arch(arch):
    """gfx950:sramecc+:xnack- → gfx950; 9.0, 90, sm_90a, compute_90 → sm_90. None stays None."""
    if arch is None or not str(arch).strip():
        return None
    text = str(arch).strip().casefold().split(":")[0]
    number = re.fullmatch(r"(?:sm_?|compute_?)?(\d{1,2})\.?(\d)a?f?", text)
    return f"sm_{number[1]}{number[2]}" if number else text


def normal_pci_id(text, vendor=None):
    """0x75a3, 75a3, 1002:75a3, 0x75a31002 → '1002:75a3' (vendor part empty where it is not known).

    ValueError for anything else.
    """
    plain = str(text).strip().casefold()
    parts = [re.sub("^0x", "", part) for part in plain.split(":")]
    if len(parts) == 1 and re.fullmatch("[0-9a-f]{8}", parts[0]):
        parts = [parts[0][4:], parts[0][:4]]
    if not 1 <= len(parts) <= 2 or not all(re.fullmatch("[0-9a-f]{1,4}", part) for part in parts):
        raise ValueError(f"{text!r} is no PCI id")
    parts = [part.zfill(4) for part in parts]
    if len(parts) == 1:
        parts.insert(0, {name: code for code, name in VENDOR_BY_PCI.items()}.get(vendor, ""))
    return ":".join(parts)


def holds(rule, facts):
    """Whether all conditions of a rule are met by known facts."""
    units, memory = facts.compute_units, facts.memory_gib
    ranges = [
        (rule.memory_gib, memory),
        (rule.power_cap_w, facts.power_cap_w),
        (rule.clock_mhz, facts.clock_mhz),
    ]
    return (
        (rule.compute_units is None or units in rule.compute_units)
        and all(wanted is None or _within(value, wanted) for wanted, value in ranges)
        and (
            rule.pci_revision is None
            or rule.pci_revision == (facts.pci_revision or "").casefold().removeprefix("0x")
        )
        and all(getattr(facts, name) is None for name in rule.unknown)
    )


def contradictions(facts, profile, rule, rules):
    """Facts that the profile can't have, each as a phrase.

    Facts that the rule itself has weighed are left out.
    """
    found = []
    vendor = facts.vendor or VENDOR_BY_PCI.get((facts.pci_id or "").split(":")[0])
    foreign = facts.pci_id is not None and facts.pci_id.split(":")[0] not in ("", *VENDOR_BY_PCI)
    if (vendor and vendor != profile.vendor) or foreign:
        found.append(f"the vendor is {vendor or facts.pci_id}, not {profile.vendor}")
    arch = normal_arch(facts.arch)
    if arch and arch != profile.arch:
        found.append(f"the architecture is {arch}, not {profile.arch}")
    units = facts.compute_units
    if units is not None and rule.compute_units is None:
        fitting = profile.compute_units_reported or (profile.compute_units,)
        if units not in fitting:
            found.append(_unit_phrase(units, profile, facts, rules))
    if (
        facts.memory_gib is not None
        and rule.memory_gib is None
        and not _memory_fits(facts.memory_gib, profile, rules)
    ):
        found.append(f"{facts.memory_gib:g} GiB of memory do not fit its {profile.memory_capacity_gb:g} GB")
    for limit, value, unit in (
        (profile.power_cap_max_w, facts.power_cap_w, "W"),
        (profile.clock_max_mhz, facts.clock_mhz, "MHz"),
    ):
        if limit is not None and value is not None and value > limit:
            found.append(f"{value:g} {unit} are more than it has ({limit:g})")
    return found


def _match_pci(facts, rules):
    if not facts.pci_id:
        return None
    vendor, _, device = facts.pci_id.rpartition(":")
    fitting = [
        rule for rule in rules.pci_rules
        if holds(rule, facts)
        and any(one == facts.pci_id or (not vendor and one.endswith(f":{device}")) for one in rule.ids)
    ]  # fmt: skip
    return fitting[0] if fitting else None


def _match_name(words, facts, rules):
    """First rule whose words are all there; any further word must be allowed, unless the rule says null."""
    have, neutral = set(words), set(rules.neutral_words)
    for rule in rules.name_rules:
        if not have.issuperset(rule.model) or not all(have & set(group) for group in rule.needs):
            continue
        known = neutral.union(rule.model, rule.allows, *rule.needs)
        if rule.profile is None or (have <= known and holds(rule, facts)):
            return rule
    return None


def _says_nothing(words, facts, rules):
    """Whether a name is missing or generic; the architecture overrules no other name."""
    return set(words) <= {*rules.neutral_words, *rules.generic_words, normal_arch(facts.arch)}


def _match_arch(facts, rules):
    arch = normal_arch(facts.arch)
    return next((rule for rule in rules.arch_rules if rule.arch == arch and holds(rule, facts)), None)


def _identify_cpu(facts, words, profiles, rules):
    """By name, else by family and model; the flags must hold the profile's bf16 instructions."""
    have = set(words)
    rule = next((r for r in rules.cpu_rules if _cpu_rule_fits(r, words)), None)
    how = "name"
    if rule is None:
        how = "cpu family and model"
        rule = next((r for r in rules.cpuid_rules if _cpuid_rule_fits(r, facts, have)), None)
    if rule is None or rule.profile is None:
        shown = facts.name.strip()[:NAME_LIMIT] if facts.name else "unnamed CPU"
        reason = f"{shown!r} is no CPU model with a profile (cpu_generic has no figures either)"
        return Identification(None, "nothing", (f"{NOTHING}: {reason}",))
    core = profiles[rule.profile].cpu
    hidden = [f for f in core.isa_flags if "bf16" in f and facts.cpu_flags and f not in facts.cpu_flags]
    if hidden:
        return Identification(
            None, how, (f"{NOTHING}: {how} says {rule.profile}, but this host lacks {', '.join(hidden)}",)
        )
    notes = ["rated figures are per core and socket; a host's peak needs its cores and the clock they hold"]
    if rule.why:
        notes.append(rule.why)
    return Identification(rule.profile, how, tuple(notes), rule.withhold)


def _cpu_rule_fits(rule, words):
    have = set(words)
    series = have.issuperset(rule.words) and (not rule.any or have & set(rule.any))
    return bool(series) and any(re.fullmatch(rule.pattern, word) for word in words)


def _cpuid_rule_fits(rule, facts, have):
    named = have <= set(rule.words) and facts.vendor in (None, rule.vendor)
    return bool(have) and named and facts.cpu_family == rule.family and facts.cpu_model in rule.models


def _looks_like_cpu(words, rules):
    return any(set(words).issuperset(rule.words) for rule in rules.cpu_rules)


def _slice_of(facts, words, rules):
    """Why a device is only a part of one (MIG, vGPU, compute partition), or None."""
    mode = (facts.partition or "none").strip().casefold()
    if mode not in rules.whole_modes:
        return f"partition mode {facts.partition.strip()}: a part of a device; rated values are the whole's"
    cut = [
        w for w in words if w in rules.slice_words or any(re.fullmatch(p, w) for p in rules.slice_patterns)
    ]
    return f"name: {cut[0]!r} is a slice of a device, rated values are those of the whole" if cut else None


def _unit_phrase(units, profile, facts, rules):
    """Why a number of compute units does not fit, with the reason where a rule knows it."""
    told = next(
        (
            r
            for r in rules.arch_rules
            if r.arch == profile.arch and r.profile is None and units in (r.compute_units or ())
        ),
        None,
    )
    why = f" ({told.why})" if told else ""
    if not why and profile.compute_units % units == 0:
        why = f" (1/{profile.compute_units // units}: a partition or slice)"
    return f"{units} {profile.compute_unit_kind} are not its {profile.compute_units}{why}"


def _memory_fits(memory_gib, profile, rules):
    low = 0 if profile.memory_shared else rules.memory_fits.low
    return (
        low * profile.memory_capacity_gb <= memory_gib <= rules.memory_fits.high * profile.memory_capacity_gb
    )


def _within(value, wanted):
    low, high = wanted
    return value is not None and (low is None or value >= low) and (high is None or value <= high)


def _notes(facts, words, how, rule, known, rules):
    """What is to be known about an identification that holds."""
    notes = [rule.why] if rule.why else []
    if rule.virtual or set(words) & set(rules.virtual_words):
        notes.append("virtual function: rated values are the whole device's")
    if how == "pci id" and known is not None and known.profile != rule.profile:
        notes.append(f"the name says {known.profile}; the PCI id counts")
    if how != "pci id" and facts.pci_id:
        notes.append(f"PCI id {facts.pci_id.lstrip(':')} decides nothing")
    if "memory" in rule.withhold:
        notes.append("no rated memory: this variant has another memory than the profile")
    return tuple(notes)


def _reason(facts, words, rules):
    """Why nothing matched."""
    given = [facts.name.strip()[:NAME_LIMIT]] if words else []
    given += [
        f"{label} {value}"
        for label, value in (("PCI id", facts.pci_id), ("architecture", facts.arch))
        if value
    ]
    if facts.name and not words and len(facts.name) > NAME_LIMIT:
        return "the name is longer than any device's"
    if any(set(words).issuperset(rule.model) for rule in rules.name_rules):
        return f"{facts.name.strip()[:NAME_LIMIT]!r} is no variant with a profile; no rating is borrowed"
    return f"no profile for {', '.join(map(repr, given)) or 'these facts'}"


def identify_command(
    name="", arch=None, memory_gib=None, compute_units=None, pci_id=None, power_cap_w=None, clock_mhz=None
):
    """What `python -m escherlib identify` prints, as a dict. UserError for facts that can't be."""
    from escherlib.parameters import load_devices

    numbers = {
        "memory-gib": memory_gib,
        "compute-units": compute_units,
        "power-cap-w": power_cap_w,
        "clock-mhz": clock_mhz,
    }
    for option, value in numbers.items():
        if value is not None:
            _check_number(option, value)
    name = str(name or "").replace("\0", " ").encode("utf-8", "replace").decode()
    vendor = next((v for v in VENDOR_BY_PCI.values() if v.casefold() in name_words(name)), None)
    if pci_id is not None:
        try:
            pci_id = normal_pci_id(pci_id, vendor)
        except ValueError:
            raise UserError(
                f"--pci-id {pci_id!r}: expected a device id in hex, such as 0x75a3, 75a3 or 1002:75a3"
            ) from None
    arch = None if arch is None or not arch.strip() else arch
    if not name.strip() and all(value is None for value in (arch, pci_id, *numbers.values())):
        raise UserError(
            "identify: nothing given; expected --name, or another fact such as --pci-id or --arch"
        )
    facts = DeviceFacts(
        name=name, arch=arch, memory_gib=memory_gib, compute_units=compute_units, pci_id=pci_id,
        power_cap_w=power_cap_w, clock_mhz=clock_mhz,
    )  # fmt: skip
    profiles = load_devices()
    return describe(facts, identify(facts, profiles), profiles)


def describe(facts, found, profiles):
    """An identification as JSON values: profile, how, notes, what is rated, and the facts it rests on."""
    profile = profiles[found.profile_id].without(found.withheld) if found.profile_id else None
    private = {"bdf", "cpu_flags"}
    given = {
        key: value for key, value in asdict(facts).items() if key not in private and value not in (None, "")
    }
    given["name"] = facts.name.strip()[:NAME_LIMIT]
    return {
        "profile": found.profile_id,
        "how": found.how,
        "notes": list(found.notes),
        "display_name": profile.display_name if profile else None,
        "withheld": list(found.withheld),
        "rated": dict(profile.rated) if profile else None,
        "memory_bandwidth_gb_s": profile.memory_bandwidth_gb_s if profile else None,
        "facts": given,
    }


def _check_number(option, value):
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or value <= 0
    ):
        raise UserError(f"--{option} {value}: expected a number above 0")
