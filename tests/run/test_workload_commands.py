"""`workload`, `models` and `--reference-model`: what they print, and one line for a mistake."""

import subprocess
import sys

import pytest

from escherlib.files import ROOT


def cli(*arguments):
    return subprocess.run([sys.executable, "-m", "escherlib", *arguments], capture_output=True, text=True, cwd=ROOT)


def test_workload_prints_the_op_table():
    done = cli("workload", "escher_14b_480p")
    assert done.returncode == 0 and done.stderr == ""
    assert "self_attn.flash" in done.stdout and "one block: 4641.6 GFLOP" in done.stdout
    assert "FLOP -0.00 %, traffic +0.05 %" in done.stdout


def test_workload_takes_overrides_and_csv():
    done = cli("workload", "escher_14b_480p", "--depth", "2", "--csv")
    assert done.stdout.startswith("op,shape,gflop,") and done.returncode == 0
    assert "changed: blocks 40 → 2" in cli("workload", "--depth", "2").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("workload", "nosuch"), "WORKLOAD=nosuch: unknown workload; choose from"),
        (("workload", "escher_14b_480p", "--window", "2"), "WINDOW=2: the window (2 latent frames) holds the chunk's own 3 too"),
        (("benchmark", "--reference-model", "nosuch"), "REFERENCE_MODEL=nosuch: unknown model; choose from"),
        (("benchmark", "--reference-model", "veo3_proprietary"), "no workload here has its geometry"),
        (("benchmark", "--reference-model", "wan2_2_ti2v_5b", "--workload", "smoke"), "names the workload itself"),
        (("models", "--models", "nosuch.yaml"), "nosuch.yaml"),
    ],
)
def test_a_mistake_is_one_line(arguments, said):
    done = cli(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert said in done.stderr and done.stderr.count("\n") == 1


def test_models_lists_all():
    done = cli("models")
    assert done.returncode == 0 and "Wan-AI/Wan2.2-TI2V-5B" in done.stdout and "veo3_proprietary" in done.stdout


def test_a_models_file_is_checked(tmp_path):
    file = tmp_path / "models.yaml"
    entry = "workload: nosuch, hub: null, licence: null, d_model: null, blocks: null, heads: null, head_dim: null, ffn: null, tokens: null"
    file.write_text(f"models: {{mine: {{{entry}, note: mine}}}}\n")
    done = cli("models", "--models", str(file))
    assert done.returncode == 2 and "models: mine: workload: found the text 'nosuch'; expected null or one of" in done.stderr
