"""Name and version of the package, in one place: pyproject.toml reads the version, messages name the distribution."""

DISTRIBUTION = "csml-vision"
"""The name on the package index, where `csml` is another project; the module and the command are called csml."""
VERSION = "0.1.0"


def install_command(extra: str) -> str:
    """How to install an extra: `pip install 'csml-vision[report]'`."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
