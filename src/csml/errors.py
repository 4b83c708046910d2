"""The one exception that is meant for people."""


class CsmlError(Exception):
    """What is wrong and what would be right, in one line; the command line prints it without a traceback."""
