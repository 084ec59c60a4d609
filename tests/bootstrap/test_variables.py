"""The table of variables, what it forwards and what it refuses."""

import pytest

from escherlib.bootstrap import variables
from escherlib.bootstrap.console import SetupError
from escherlib.files import ROOT


def test_every_flag_exists_in_the_command_line():
    from escherlib.cli import commands

    for variable in variables.VARIABLES:
        for name in variable.commands if variable.flag else ():
            if name == "setup":
                continue
            command = commands.commands[name]
            known = {option for p in command.params for option in [*p.opts, *p.secondary_opts]}
            assert variable.flag in known, f"{variable.name}: {name} has no {variable.flag}"


def test_every_option_of_the_command_line_has_a_variable():
    from escherlib.cli import commands

    flags = {variable.flag for variable in variables.VARIABLES}
    for name in ("benchmark", "report", "analyze", "list", "doctor"):
        for option in commands.commands[name].params:
            assert flags & {*option.opts, *option.secondary_opts}, f"{name} {option.opts}"


def test_readme_has_this_very_table():
    assert variables.help_markdown() in (ROOT / "README.md").read_text(), (
        "paste it: python3 -m escherlib.bootstrap help --markdown"
    )


def test_help_names_everything_and_stays_narrow():
    text = variables.help_text()
    assert all(name in text for name in (*variables.TARGETS, *variables.BY_NAME))
    assert max(map(len, text.splitlines())) <= 110


def test_forwarding_keeps_values_whole():
    given = {
        "DEVICE": "h100",
        "NUMACTL": "--localalloc -C 0-3",
        "MARKING": "a 'b' \"c\" $d",
        "TEXT_TOKENS": "77",
    }
    assert variables.forward("benchmark", given) == [
        "--device=h100", "--numactl=--localalloc -C 0-3", "--marking=a 'b' \"c\" $d", "--text-tokens=77",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "given, arguments",
    [
        ({"FORCE": "1"}, ["--force"]), ({"FORCE": "0"}, []),
        ({"EMBED": "0"}, ["--no-embed"]), ({"EMBED": "1"}, []),
        ({"ALL": "yes"}, ["--all"]), ({"PREPARE_SYS": "1"}, ["--prepare-sys"]),
        ({"VENV": "x", "TORCH": "cpu"}, []),
    ],
)  # fmt: skip
def test_switches(given, arguments):
    assert variables.forward("benchmark", given) == arguments


def test_a_switch_is_one_or_zero():
    with pytest.raises(SetupError, match="FORCE=maybe: expected 1 or 0"):
        variables.forward("benchmark", {"FORCE": "maybe"})


def test_names_of_makes_command_line():
    assert variables.overridden(r"A=1 MARKING=two\ words\ C=3 B:=x") == {"A", "MARKING", "B"}
    assert variables.overridden("") == set()


def test_unknown_and_useless_variables_are_refused():
    with pytest.raises(SetupError, match="DEVCE: no such variable; did you mean DEVICE"):
        variables.check_names({"DEVCE"}, ["benchmark"])
    with pytest.raises(SetupError, match="SUITE: `make report` does not use it"):
        variables.check_names({"SUITE"}, ["report"])
    variables.check_names({"SUITE"}, ["clean", "benchmark"])
    variables.check_names({"VENV", "SHELL"}, ["test"])


def test_empty_values():
    with pytest.raises(SetupError, match="DEVICE=: empty"):
        variables.read_given("benchmark", {"DEVICE": " "}, {"DEVICE"})
    assert variables.read_given("benchmark", {"DEVICE": "", "MARKING": ""}, {"MARKING"}) == {}
    assert variables.read_given("report", {"SUITE": "full", "RUN": "x"}, set()) == {"RUN": "x"}
