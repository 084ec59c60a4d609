"""Schema of the rules in parameters/devices.yaml that tell devices apart."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from escherlib.schemas.base import Items, Share, Strict, Text

Fact = Literal["compute_units", "memory_gib", "power_cap_w", "clock_mhz"]


def _range(found):
    """[low, high] with null for an open end."""
    if not isinstance(found, list) or len(found) != 2:
        raise ValueError("a range is a list of two numbers, null for an open end")
    return tuple(found)


def _pattern(text):
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression ({error})") from None
    return text


Range = Annotated[tuple[float | None, float | None], BeforeValidator(_range)]
PciId = Annotated[
    str, AfterValidator(lambda text: text if re.fullmatch("[0-9a-f]{4}:[0-9a-f]{4}", text) else _bad_id(text))
]
Pattern = Annotated[str, AfterValidator(_pattern)]


def _bad_id(text):
    raise ValueError(f"{text!r} is no PCI id; expected vendor:device in lower-case hex, such as '1002:75a3'")


class Rule(Strict):
    """An answer and the conditions under which it holds. A condition on an unknown fact does not hold."""

    profile: str | None
    compute_units: Items[int] | None = None
    memory_gib: Range | None = None
    power_cap_w: Range | None = None
    clock_mhz: Range | None = None
    pci_revision: str | None = None
    unknown: Items[Fact] = ()
    withhold: Items[Literal["memory"]] = ()
    virtual: bool = False
    why: str = ""
    source: str | None = None


class PciRule(Rule):
    """By PCI vendor and device id."""

    ids: Items[PciId]


class NameRule(Rule):
    """By the words of a device name."""

    model: Items[Text]
    needs: Items[Items[Text]] = ()
    allows: Items[Text] = ()


class ArchRule(Rule):
    """By gfx or SM target."""

    arch: Text


class CpuRule(Rule):
    """By the words of a CPU model name, one of which must match `pattern` in full."""

    words: Items[Text]
    any: Items[Text] = ()
    pattern: Pattern


class CpuidRule(Rule):
    """By CPU family and model, for names that say nothing beyond `words`."""

    vendor: Text
    words: Items[Text]
    family: int
    models: Items[int]


class MemoryFits(Strict):
    """Share of the capacity figure that a driver may report for the same part."""

    low: Share
    high: float


class IdentificationRules(Strict):
    """All rules, in the order in which they are tried."""

    memory_fits: MemoryFits
    whole_modes: Items[Text]
    slice_words: Items[Text]
    slice_patterns: Items[Pattern]
    neutral_words: Items[Text]
    virtual_words: Items[Text]
    generic_words: Items[Text]
    pci_rules: Items[PciRule]
    name_rules: Items[NameRule]
    arch_rules: Items[ArchRule]
    cpu_rules: Items[CpuRule]
    cpuid_rules: Items[CpuidRule]

    def all_rules(self):
        """Every rule of every kind."""
        return (*self.pci_rules, *self.name_rules, *self.arch_rules, *self.cpu_rules, *self.cpuid_rules)
