"""Schema of parameters/workloads/*.yaml: the geometry of one block, and the pilot's published totals."""

from typing import Literal

from pydantic import Field, model_validator

from escherlib.schemas.base import Count, Items, Positive, Strict, Text

ITEM_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
MEGABYTE = {"MB": 10**6, "MiB": 2**20}


class PilotReference(Strict):
    """What the pilot published of its run: totals of one block with the time embedding, roofs and MFU."""

    block_gflop: Positive
    block_traffic_mb: Positive
    peak_tflops: Positive
    ridge_flop_per_byte: Positive
    ring_gb_s: Positive
    memory_to_ring_ratio: Positive
    mfu_sum_of_ops_pct: Positive
    mfu_eager_pct: Positive
    mfu_compiled_pct: Positive


class Streams(Strict):
    """Times a [query tokens × width] tensor passes through memory in one block, by kind of operation.

    norm, residual and kv_cache_write have width d_model, gelu has width ffn.
    """

    norm: int = Field(ge=0)
    residual: int = Field(ge=0)
    gelu: int = Field(ge=0)
    kv_cache_write: int = Field(ge=0)


class Drift(Strict):
    """One block's totals against the published ones, in percent."""

    flop_pct: float
    traffic_pct: float
    limit_pct: Positive

    @property
    def within(self):
        """Whether both totals are the published ones within the limit."""
        return abs(self.flop_pct) <= self.limit_pct and abs(self.traffic_pct) <= self.limit_pct


class Workload(Strict):
    """One block's geometry. Tokens are given directly, or as latent frames × tokens per latent frame."""

    name: Text
    description: Text
    reference: str | None = None
    dtype: Literal["bf16", "fp16", "fp32"]
    batch: Count = 1
    d_model: Count
    heads: Count
    head_dim: Count
    ffn: Count
    blocks: Count
    tokens_per_latent_frame: Count | None = None
    frames: Count | None = None
    window: Count | None = None
    query_tokens: Count
    kv_tokens: Count
    text_tokens: Count
    cross_kv_cached: bool
    context_dim: Count | None = None
    time_widths: Items[Count]
    rows_time: Count
    streams: Streams
    printed_megabyte: Literal["MB", "MiB"]
    pilot_reference: PilotReference | None = None
    drift: Drift | None = None
    changed: Items[Text] = ()
    scale_note: str = ""
    sha: str = ""

    @model_validator(mode="before")
    @classmethod
    def _tokens_from_frames(cls, data):
        """Fill query_tokens, kv_tokens and rows_time (one row per latent frame) in from the frames."""
        if not isinstance(data, dict) or not all(
            _is_count(data.get(k)) for k in ("tokens_per_latent_frame", "frames", "window")
        ):
            return data
        per_frame, frames, window = data["tokens_per_latent_frame"], data["frames"], data["window"]
        derived = {"query_tokens": frames * per_frame, "kv_tokens": window * per_frame, "rows_time": frames}
        return derived | data

    @model_validator(mode="after")
    def _geometry_holds_together(self):
        framed = [self.tokens_per_latent_frame, self.frames, self.window]
        if any(value is None for value in framed) and any(value is not None for value in framed):
            raise ValueError(
                "tokens_per_latent_frame, frames and window go together; give all three, or tokens alone"
            )
        if self.frames is not None:
            expected = (
                self.frames * self.tokens_per_latent_frame,
                self.window * self.tokens_per_latent_frame,
            )
            if (self.query_tokens, self.kv_tokens) != expected:
                raise ValueError(
                    f"query_tokens and kv_tokens are {self.query_tokens} and {self.kv_tokens}; "
                    f"frames and window make {expected[0]} and {expected[1]}"
                )
            if self.window < self.frames:
                raise ValueError(
                    f"window = {self.window}: it holds the chunk's {self.frames} latent frames too; raise it"
                )
        if self.heads * self.head_dim != self.d_model:
            raise ValueError(
                f"heads × head_dim is {self.heads * self.head_dim}; expected d_model = {self.d_model}"
            )
        if not self.cross_kv_cached and self.context_dim is None:
            raise ValueError(
                "context_dim is missing; cross k and v are computed from the text, so its width is needed"
            )
        if (self.reference == self.name) != (self.pilot_reference is not None):
            raise ValueError(
                "pilot_reference belongs to the workload whose `reference` is itself, and to no other"
            )
        return self

    @property
    def itemsize(self):
        """Bytes per element."""
        return ITEM_BYTES[self.dtype]

    @property
    def time_gemms(self):
        """(inputs, outputs) of each layer of the time MLP."""
        return tuple(zip(self.time_widths, self.time_widths[1:], strict=False))

    def identity(self):
        """Everything that decides what is measured: name and geometry, no remarks. Its hash is `sha`."""
        remarks = {
            "description",
            "scale_note",
            "pilot_reference",
            "drift",
            "reference",
            "printed_megabyte",
            "changed",
            "sha",
        }
        return self.model_dump(mode="json", exclude=remarks)

    def geometry(self):
        """identity() and how it is scaled: what a measuring function is handed, and a record keeps."""
        return {**self.identity(), "scale_note": self.scale_note}

    @property
    def is_pilots(self):
        """Whether this is the published workload within the drift limit."""
        return self.drift is not None and self.drift.within

    @property
    def label(self):
        """What stands beside every figure: empty for the pilot's own workload, else how it differs."""
        parts = [self.scale_note] if self.scale_note else []
        if self.changed:
            parts.append(f"changed: {', '.join(self.changed)}")
        if self.drift is not None and not self.drift.within:
            parts.append(
                "not the pilot's workload "
                f"(FLOP {self.drift.flop_pct:+.1f} %, traffic {self.drift.traffic_pct:+.1f} %)"
            )
        return "; ".join(parts)


def _is_count(value):
    return isinstance(value, int) and not isinstance(value, bool)
