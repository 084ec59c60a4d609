"""Schema of parameters/devices.yaml: rated and published figures per device, with basis and source."""

from typing import Literal

from pydantic import Field, model_validator

from escherlib.schemas.base import Count, Items, Positive, Share, Strict, Text
from escherlib.schemas.identification import IdentificationRules

Vendor = Literal["AMD", "NVIDIA", "Intel", "Arm", "unknown"]
RatedName = Literal[
    "bf16_tflops", "fp16_tflops", "fp8_tflops", "fp4_tflops", "int8_tops", "tf32_tflops",
    "fp32_tflops", "fp32_matrix_tflops", "fp64_tflops", "fp64_matrix_tflops",
]  # fmt: skip
TORCH_NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}
MEMORY_FIELDS = ("memory_type", "memory_capacity_gb", "memory_reported_gib", "memory_bandwidth_gb_s")
# Fields that may stand without a source: names, and switches of our own.
UNSOURCED = {
    "display_name", "vendor", "device_class", "unit", "compute_unit_kind", "compute_units_reported",
    "bf16_native", "rated_basis", "rated", "memory_shared", "power_cap_max_w", "clock_max_mhz",
    "interconnect_name", "cpu", "unrated", "published", "observations", "sources", "rejected_bf16_ratings", "notes",
}  # fmt: skip


class Source(Strict):
    """Where a group of fields comes from."""

    fields: Items[Text]
    refs: Items[Text]
    evidence: Literal["cross_checked", "single_source", "unverified"]
    basis: Text


class Published(Strict):
    """One published measurement, or a vendor's pass limit (floor)."""

    value: Positive
    kind: Literal["measured", "proxy", "floor"]
    source: Text
    conditions: Text


class Observation(Published):
    """A published figure beside the headline one."""

    metric: Text


class RejectedRating(Strict):
    """A rating in circulation that is not the dense rating of this device."""

    value: Positive
    why: Text
    source: Text


class CpuCore(Strict):
    """What one core and one socket are rated at; a host's figure needs its cores, sockets and clock."""

    isa_flags: Items[str]
    bf16_flop_per_cycle: Count | None
    bf16_avx512_flop_per_cycle: Count | None
    fp32_flop_per_cycle: Count | None
    fp64_flop_per_cycle: Count | None
    int8_op_per_cycle: Count | None
    max_cores_per_socket: Count | None
    memory_channels_per_socket: Count | None
    memory_speed_mt_s: Count | None
    memory_bandwidth_per_socket_gb_s: Positive | None


class Profile(Strict):
    """One device: rated (dense, per device as torch shows it) and published figures. null means not known."""

    id: str = ""
    display_name: Text
    vendor: Vendor
    device_class: Literal["gpu", "cpu"]
    unit: Text
    architecture: Text
    arch: str | None = None
    compute_units: Count | None = None
    compute_unit_kind: Literal["CU", "SM"] | None = None
    compute_units_reported: Items[Count] = ()
    boost_clock_mhz: Positive | None = None
    rated_tensor_clock_mhz: Positive | None = None
    power_cap_max_w: Positive | None = None
    clock_max_mhz: Positive | None = None
    bf16_native: bool
    rated_basis: Text
    rated: dict[RatedName, Positive | None] = Field(default_factory=dict)
    memory_type: str | None = None
    memory_capacity_gb: Positive | None = None
    memory_reported_gib: Positive | None = None
    memory_shared: bool = False
    memory_bandwidth_gb_s: Positive | None = None
    l2_mib: Positive | None = None
    llc_mib: float | None = Field(default=None, ge=0)
    interconnect_name: str | None = None
    interconnect_gb_s: float | None = Field(default=None, ge=0)
    interconnect_links: int | None = Field(default=None, ge=0)
    interconnect_link_gb_s: float | None = Field(default=None, ge=0)
    pcie_gen: Count | None = None
    tdp_w: Positive | None = None
    sc1_sustained_floor: Share | None = None
    cpu: CpuCore | None = None
    unrated: dict[str, str] = Field(default_factory=dict)  # kind of arithmetic → why a CPU host has no rate (schemas.hosts)
    published: dict[str, Published] = Field(default_factory=dict, alias="achievable")
    observations: Items[Observation] = ()
    sources: Items[Source] = ()
    rejected_bf16_ratings: Items[RejectedRating] = ()
    notes: Items[Text] = ()

    @property
    def achievable(self):
        """Published headline result per metric (bf16_tflops, memory_copy_gb_s, …) where there is one."""
        return {metric: entry.value for metric, entry in self.published.items()}

    def rated_tflops(self, dtype):
        """Rated dense TFLOP/s of matrix work in `dtype` (bf16, fp16, fp8, tf32, fp32, …), or None.

        fp32 and fp64 are those of the matrix units where the device has them, else of the vector units.
        """
        name = TORCH_NAMES.get(dtype, "fp8" if dtype.startswith("float8") else dtype)
        return self.rated.get(f"{name}_matrix_tflops") or self.rated.get(f"{name}_tflops")

    def why_unrated(self, dtype):
        """Why a device of this profile has no rated TFLOP/s in `dtype`, as a phrase."""
        name = TORCH_NAMES.get(dtype, dtype)
        if self.cpu is not None and self.cpu.fp32_flop_per_cycle and name == "bf16" and not self.bf16_native:
            return f"cores of {self.id} have no native bf16"
        return self.unrated.get(name) or f"the profile {self.id} states no {dtype or 'compute'} rate"

    def achievable_share(self, dtype):
        """Published achievable ÷ rated TFLOP/s of `dtype`, or None where either is not known."""
        name = TORCH_NAMES.get(dtype, dtype)
        achieved, rated = self.achievable.get(f"{name}_tflops"), self.rated_tflops(name)
        return achieved / rated if achieved and rated else None

    def host_tflops(self, dtype, cores, clock_ghz):
        """Rated TFLOP/s of a CPU host from its cores in use and the clock they hold, or None."""
        rate = getattr(self.cpu, f"{TORCH_NAMES.get(dtype, dtype)}_flop_per_cycle", None)
        return rate * cores * clock_ghz / 1000 if rate else None

    def without(self, withheld):
        """This profile without the fields that identification withheld (`memory`: another one is fitted)."""
        if "memory" not in withheld:
            return self
        blank = dict.fromkeys(MEMORY_FIELDS)
        published = {
            metric: entry for metric, entry in self.published.items() if not metric.startswith("memory")
        }
        core = self.cpu and self.cpu.model_copy(
            update={"memory_channels_per_socket": None, "memory_bandwidth_per_socket_gb_s": None}
        )
        return self.model_copy(update={**blank, "published": published, "cpu": core})

    def source_of(self, field):
        """The Source entry that covers a field, or None."""
        return next((source for source in self.sources if field in source.fields), None)

    @model_validator(mode="after")
    def _every_figure_has_a_source(self):
        stated = {
            name: getattr(self, name) for name in type(self).model_fields if name not in UNSOURCED | {"id"}
        }
        stated |= self.rated | (self.cpu.model_dump(exclude={"isa_flags"}) if self.cpu else {})
        if self.device_class == "cpu":
            stated.pop("architecture")
        for name, value in stated.items():
            if value and self.source_of(name) is None:  # 0: absent by design
                raise ValueError(f"{name} = {value} has no source; add it to a group of `sources`")
        return self


class SourceEntry(Strict):
    """One entry of the source index."""

    title: Text
    url: str | None = None
    note: str | None = None


class Devices(Strict):
    """The whole file: profiles, identification rules, source index."""

    profiles: dict[Text, Profile]
    identification: IdentificationRules
    source_index: dict[Text, SourceEntry]

    @model_validator(mode="before")
    @classmethod
    def _ids_from_keys(cls, data):
        profiles = data.get("profiles") if isinstance(data, dict) else None
        if not isinstance(profiles, dict):
            return data
        named = {
            key: {"id": key, **entry} if isinstance(entry, dict) else entry for key, entry in profiles.items()
        }
        return {**data, "profiles": named}

    @model_validator(mode="after")
    def _references_exist(self):
        for profile_id, profile in self.profiles.items():
            used = [ref for group in profile.sources for ref in group.refs]
            listed = [*profile.published.values(), *profile.observations, *profile.rejected_bf16_ratings]
            for ref in used + [entry.source for entry in listed]:
                if ref not in self.source_index:
                    raise ValueError(
                        f"profiles.{profile_id} names the source {ref!r}, which source_index lacks"
                    )
        for rule in self.identification.all_rules():
            if rule.profile is not None and rule.profile not in self.profiles:
                raise ValueError(f"identification names the profile {rule.profile!r}, which profiles lacks")
            if rule.source is not None and rule.source not in self.source_index:
                raise ValueError(f"identification names the source {rule.source!r}, which source_index lacks")
        return self
