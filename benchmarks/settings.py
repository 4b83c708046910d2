"""Settings of pre-training from the words of a command line."""

from csml.cli.commands import COMMANDS
from csml.config import PretrainConfig


def pretrain_settings(words: list[str]) -> PretrainConfig:
    """The settings that `csml pretrain WORDS` would run with."""
    command = COMMANDS["pretrain"]
    config: PretrainConfig = command.config(command.options().parse(words))
    return config
