"""The operations of both paths side by side: kernels that do the same work make one group, in block order."""

from dataclasses import dataclass
from functools import partial

from escherlib.judge.roofs import read_roofs
from escherlib.judge.workload import read_ops, timed_workload

FAMILY = "04_workload_ops"
ONCE = "time MLP"  # its layers are launched once a chunk and are one group


@dataclass(frozen=True)
class Group:
    """Kernels of both paths that do the same work. `default` and `optimized` are judged operations (judge.workload.Op)."""

    name: str
    default: tuple
    optimized: tuple

    @property
    def is_matrix(self):
        """Whether matrix products or attention of the block are in it."""
        return self.name != ONCE and any(op.kernel.is_matrix for op in (*self.default, *self.optimized))

    def measured_s(self, path):
        """Seconds of one chunk on a path; None where one of its kernels has no value."""
        return total(getattr(self, path), lambda op: op.measured_s)

    def floor_s(self, path):
        """Least seconds of one chunk on a path under the measured roofs, or None."""
        return total(getattr(self, path), lambda op: op.floor_s)

    def ratio(self, path):
        """Measured over floor, or None."""
        measured, floor = self.measured_s(path), self.floor_s(path)
        return measured / floor if measured and floor else None


def total(ops, of):
    """Sum of a value of one launch over all launches of a chunk; None where a value is missing or there is none."""
    values = [(of(op), op.kernel.count) for op in ops]
    return sum(v * n for v, n in values) if values and all(v is not None for v, _ in values) else None


def read(results, path):
    """Judged operations of one path of what this run timed; [] where the run has none of this family."""
    from escherlib.parameters import load_scoring

    timed, scoring = timed_workload(results), load_scoring()
    if timed is None:
        return []
    return read_ops(results, timed, read_roofs(results, scoring), path, scoring)


def groups(results):
    """Groups of both paths in block order."""
    return joined(read(results, "default"), read(results, "optimized"))


def joined(default, optimized):
    """Operations that share a member of the default path's list belong together, however many hands it passes through."""
    sets = []
    for path, op in [*(("default", op) for op in default), *(("optimized", op) for op in optimized)]:
        names, members = set(_members(op)), [(path, op)]
        for known in [known for known in sets if known[0] & names]:
            sets.remove(known)
            names, members = names | known[0], known[1] + members
        sets.append((names, members))
    found = [Group(_name(members), *(_of(members, path) for path in ("default", "optimized"))) for _, members in sets]
    order = {op.kernel.name: i for i, op in reversed(list(enumerate([*default, *optimized])))}
    return sorted(found, key=partial(_first, order=order))


def _members(op):
    return (ONCE,) if op.kernel.name.startswith("time_") else op.kernel.members


def _of(members, path):
    return tuple(op for where, op in members if where == path)


def _first(group, order):
    """Place of a group: that of its first kernel in the default path."""
    return min(order[op.kernel.name] for op in group.default or group.optimized)


def _name(members):
    """Words for a group: the fused kernel's name, or that of the only kernel."""
    names = list(dict.fromkeys(op.kernel.name for _, op in members))
    if all(name.startswith("time_") for name in names):
        return ONCE
    optimized = [op for path, op in members if path == "optimized"]
    heaviest = max(optimized or [op for _, op in members], key=lambda op: op.kernel.nbytes * op.kernel.count)
    return heaviest.kernel.name


def scale_text(results):
    """`; timed: 2 of 40 blocks …` for a subtitle; empty where all of the workload was timed."""
    timed = timed_workload(results)
    return f"; timed: {timed.scale_note}" if timed is not None and timed.scale_note else ""
