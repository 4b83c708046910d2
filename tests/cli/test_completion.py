"""Shell completion: bash answers as at the press of Tab; the other scripts know the same options."""

import re
import subprocess
from pathlib import Path

import pytest

from conftest import csml
from csml.cli import show
from csml.cli.commands import COMMANDS
from csml.cli.completion import completion
from csml.config import PRESETS
from csml.config.build import leaves


def pressed(*words: str) -> list[str]:
    """What bash offers for the last of the words."""
    line = " ".join(f"'{word}'" for word in words)
    asked = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _csml; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    command = ["bash", "--norc", "-c", f"{completion('bash').script}\n{asked}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes_commands_settings_and_values() -> None:
    assert pressed("csml", "") == list(COMMANDS)
    assert pressed("csml", "pre") == ["pretrain", "predict", "presets"]
    assert pressed("csml", "pretrain", "--neighbors.r") == ["--neighbors.refresh_every", "--neighbors.recall"]
    assert pressed("csml", "pretrain", "--views.mix", "") == ["cutmix", "mixup", "none"]
    assert pressed("csml", "pretrain", "--views.symmetric", "t") == ["true"]
    assert pressed("csml", "finetune", "--preset", "") == list(PRESETS)
    assert "resnet50" in pressed("csml", "pretrain", "--model.backbone", "resnet")


def test_bash_completes_files_where_there_are_no_names(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    assert pressed("csml", "pretrain", "--data", f"{tmp_path}/ph") == [f"{tmp_path}/photos"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_script_knows_every_option(shell: str) -> None:
    script = csml("completion", shell).stdout
    for name, command in COMMANDS.items():
        assert name in script
        for key in leaves(command.schema):
            assert (f"-l {key} " if shell == "fish" else f"--{key}") in script


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_quotes_of_the_scripts_match(shell: str) -> None:
    for line in completion(shell).script.splitlines():
        assert len(re.findall("'", line)) % 2 == 0, line


@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", ".local/share/bash-completion/completions/csml"),
        ("zsh", ".local/share/csml/completion.zsh"),
        ("fish", ".config/fish/completions/csml.fish"),
    ],
)
def test_one_command_installs_it(shell: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(variable, raising=False)
    for _ in range(2):  # twice does no harm
        assert csml("completion", shell, "--install").returncode == 0
    assert (tmp_path / place).read_text() == completion(shell).script + "\n"
    if shell == "zsh":
        assert (tmp_path / ".zshrc").read_text().count("completion.zsh") == 1


def test_bash_without_the_package_bash_completion_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "my data"))
    monkeypatch.setattr("csml.cli.completion._PREFIXES", (str(tmp_path),))
    monkeypatch.setattr("csml.cli.completion._PACKAGE_MANAGERS", ())
    show.completion(found := completion("bash", install=True))
    told = capsys.readouterr().out
    assert "bash-completion, which reads it, is not installed: install it, or add to ~/.bashrc:" in told
    assert told.endswith(f"\n    source '{found.path}'\n")
    (tmp_path / "share/bash-completion").mkdir(parents=True)
    (tmp_path / "share/bash-completion/bash_completion").touch()
    assert completion("bash", install=True).needs is None
    assert completion("bash").needs is None


def test_another_shell_is_one_line() -> None:
    assert csml("completion", "tcsh").stderr == "csml: error: shell: one of bash, zsh, fish, not 'tcsh'\n"
