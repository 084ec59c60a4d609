"""Schema of parameters/models.yaml: video models for reference, and the workload that has their geometry."""

from escherlib.schemas.base import Count, Strict, Text


class ReferenceModel(Strict):
    """One model. `workload`: the file in parameters/workloads with its geometry; None where it can't be measured here.

    `hub`: its id on the model hub. `tokens`: of one forward at the default size. None: not public, or not confirmed.
    """

    workload: Text | None
    hub: Text | None
    licence: Text | None
    d_model: Count | None
    blocks: Count | None
    heads: Count | None
    head_dim: Count | None
    ffn: Count | None
    tokens: Count | None
    note: Text


class Models(Strict):
    """All of them by id."""

    models: dict[str, ReferenceModel]
