"""Schema of parameters/suites/*.yaml: what each family measures, for CPU and GPU hosts.

A parameter's name here is the name of the variable in the notebook's parameters cell. A new family is a new
class and one line in `Families`.
"""

from typing import Generic, Literal, TypeVar

from pydantic import Field

from escherlib.schemas.base import Count, Items, Positive, Strict, Text

Family = TypeVar("Family")
Dtype = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
StreamOp = Literal["copy", "add", "mul", "axpy", "sum", "fill", "strided"]


class Environment(Strict):
    """Family 0 has nothing to set."""


class Bf16Compute(Strict):
    """Family 1. Squares from `sustained_from` on also get a sustained row. A workload product whose call
    would take more than `call_budget_s` is refused (0: none is timed). Variants keep the FLOP of the square
    of `reference_size` (0: no variants). `protocol`: changes to timing.Protocol, field → value.
    """

    search_s: float = Field(ge=0)
    transient_s: float = Field(ge=0)
    square_sizes: Items[Count]
    states: Items[Literal["burst", "sustained", "cold", "hot"]]
    sustained_from: Count
    call_budget_s: float = Field(ge=0)
    reference_size: int = Field(ge=0)
    dtypes: Items[Dtype]
    correct_k: Items[Count]
    protocol: dict[str, int | float]


class MemoryBandwidth(Strict):
    """Family 2. sizes_mib counts one buffer."""

    ops: Items[StreamOp]
    sizes_mib: Items[Count]
    cache_sizes_kib: Items[Count]


class MemoryCapacity(Strict):
    """Family 3. limit_gib caps the search; null searches all the memory there is. headroom: with the model resident."""

    dtypes: Items[Literal["bf16", "fp16"]]
    chunk_mib: Count
    limit_gib: Positive | None
    headroom: bool


class WorkloadOps(Strict):
    """Family 4. `attention_backends`: names of kernels/attention.py, or `auto` for all. A launch that would take more
    than `call_budget_s` is refused. `depth_captured`: blocks of the stack whose operands are timed. `chunk_budget_s`:
    seconds of the sustained peak one chunk may cost before a CPU host times less than the whole workload.
    """

    attention_backends: Items[Text]
    states: Items[Literal["burst", "sustained", "cold", "hot"]]
    call_budget_s: Positive
    depth_captured: Count
    chunk_budget_s: Positive
    protocol: dict[str, int | float]


class EndToEnd(Strict):
    """Family 5. `chunks` of each scope, the first dropped; `floor_forwards` of the matrix floor in each turn.
    Each of `compile_modes` may take `compile_budget_s`. `floor_random`: also the floor on normal random values.
    """

    chunks: int = Field(ge=2)
    paths: Items[Literal["default", "optimized"]]
    scopes: Items[Literal["eager", "compiled"]]
    compile_modes: Items[Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]]
    compile_budget_s: Positive
    chunk_budget_s: Positive
    floor_forwards: Count
    floor_random: bool
    in_situ: bool
    protocol: dict[str, int | float]


class Sustained(Strict):
    """Family 7. `minutes` held once settled (0: none), in windows of `window_s`, from `idle_s` of rest on. `idles_s`:
    rests of the recovery curve (empty: none), each after `work_s` of work.
    """

    minutes: float = Field(ge=0)
    window_s: Positive
    idle_s: Positive
    idles_s: list[Positive]
    work_s: Positive
    chunk_budget_s: Positive
    protocol: dict[str, int | float]


class NumericalStability(Strict):
    """Family 9. Products are m×n over each depth of `k_values`, in every dtype; each runs `repeats` times more. A
    product whose call takes a CPU host longer than `call_budget_s` is refused.
    """

    dtypes: Items[Dtype | Literal["fp8_e5m2"]]
    k_values: Items[Count]
    m: Count
    n: Count
    repeats: Count
    call_budget_s: Positive


class Entry(Strict, Generic[Family]):
    """One family of one suite."""

    deadline_s: Positive
    cpu: Family
    gpu: Family


class Families(Strict):
    """The families a suite runs, by notebook name."""

    environment: Entry[Environment] | None = Field(default=None, alias="00_environment")
    bf16_compute: Entry[Bf16Compute] | None = Field(default=None, alias="01_bf16_compute")
    memory_bandwidth: Entry[MemoryBandwidth] | None = Field(default=None, alias="02_memory_bandwidth")
    memory_capacity: Entry[MemoryCapacity] | None = Field(default=None, alias="03_memory_capacity")
    workload_ops: Entry[WorkloadOps] | None = Field(default=None, alias="04_workload_ops")
    e2e_mfu: Entry[EndToEnd] | None = Field(default=None, alias="05_e2e_mfu")
    sustained: Entry[Sustained] | None = Field(default=None, alias="07_sustained")
    numerical_stability: Entry[NumericalStability] | None = Field(default=None, alias="09_numerical_stability")


class Suite(Strict):
    """A named set of families with their parameters."""

    name: Text
    description: Text
    workload: str | None = None
    entries: Families = Field(alias="families")

    @property
    def families(self):
        """Names of the suite's families, in the order of their numbers."""
        return tuple(sorted(self._by_name()))

    def family_parameters(self, family, kind):
        """Notebook parameters of one family as plain JSON values; kind is `cpu` or `gpu`.

        KeyError for a family not in it.
        """
        return getattr(self._by_name()[family], kind).model_dump(mode="json")

    def deadline_s(self, family):
        """Seconds after which the family's notebook is ended."""
        return self._by_name()[family].deadline_s

    def _by_name(self):
        fields = type(self.entries).model_fields
        pairs = ((field.alias, getattr(self.entries, name)) for name, field in fields.items())
        return {alias: entry for alias, entry in pairs if entry is not None}
