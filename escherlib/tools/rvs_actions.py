"""Our own configuration of rvs: what the shipped files measure, shorter, with the number format in the file.

Targets are far below any device: the number is wanted, not rvs's verdict on it. The shapes and the fill of the bf16 action
are those that AMD ships for Instinct GPUs (`trig`: real values; integers run faster).
"""

from pathlib import Path

COMMON = "  device: all\n"
GEMM = """\
  module: gst
  parallel: true
  ramp_interval: 5000
  duration: 10000
  log_interval: 2000
  copy_matrix: false
"""
ACTIONS = {
    "gst": f"""\
actions:
- name: xcheck-bf16
{COMMON}{GEMM}  hot_calls: 1000
  target_stress: 1000
  matrix_size_a: 4864
  matrix_size_b: 4096
  matrix_size_c: 8192
  matrix_init: trig
  data_type: bf16_r
  lda: 8320
  ldb: 8320
  ldc: 4992
  ldd: 4992
  transa: 1
  transb: 0
  alpha: 1
  beta: 0

- name: xcheck-sgemm
{COMMON}{GEMM}  target_stress: 100
  matrix_size_a: 8192
  matrix_size_b: 8192
  matrix_size_c: 8192
  ops_type: sgemm
  lda: 8192
  ldb: 8192
  ldc: 8192
  transa: 0
  transb: 1
  alpha: 1
  beta: 0
""",
    "babel": f"""\
actions:
- name: xcheck-babel
{COMMON}  module: babel
  parallel: false
  count: 1
  num_iter: 100
  array_size: 268435456
  test_type: 1
  mibibytes: false
  o/p_csv: false
  copy: true
  mul: true
  add: true
  dot: true
  triad: true
""",
    "pebb": "actions:\n"
    + "\n".join(
        f"- name: xcheck-{name}\n{COMMON}  module: pebb\n  duration: 5000\n  host_to_device: {h2d}\n  device_to_host: {d2h}\n"
        "  parallel: false\n  block_size: 268435456\n"
        for name, h2d, d2h in (("h2d", "true", "false"), ("d2h", "false", "true"))
    ),
}
PAIRS = "actions:\n" + "\n".join(
    f"- name: xcheck-{name}\n{COMMON}  module: pbqt\n  log_interval: 5000\n  duration: 10000\n  peers: all\n  test_bandwidth: true\n"
    f"  bidirectional: {both}\n  parallel: false\n  block_size: 268435456\n  device_id: all\n"
    for name, both in (("one-way", "false"), ("both-ways", "true"))
)


def written(folder, gpus):
    """Paths of the configuration files, written into `folder`."""
    actions = ACTIONS | ({"pbqt": PAIRS} if gpus > 1 else {})
    Path(folder).mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in actions.items():
        path = Path(folder) / f"rvs-{name}.conf"
        path.write_text(text)
        paths.append(path)
    return paths
